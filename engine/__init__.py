"""The CuBridge pipeline without any user interface: lift, transfer, lower, build, verify."""

"""Sessions about kernels of others, which are executed as PTX and patched in their own source."""

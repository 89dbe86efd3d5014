"""Reading what nvcc emits: PTX to instructions, as ptxas takes them."""

"""Build lowered CUDA into libraries: finding the compiler, ninja, reading what ptxas says."""

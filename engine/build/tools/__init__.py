"""nvcc and its tools as child processes, and their messages."""

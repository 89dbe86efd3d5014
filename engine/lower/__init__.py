"""From edited CuIR back to CUDA text: unchanged ops keep the expert's bytes."""

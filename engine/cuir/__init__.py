"""CuIR: a tile-level, executable text for CUDA kernels (see docs/cuir.md)."""

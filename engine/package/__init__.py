"""Accepted kernels as folders that build and import without CuBridge."""

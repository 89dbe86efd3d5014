"""What travels in a job: builds, verifies and times a kernel on the machine that has the GPU.

Needs Python 3.10, torch and nvcc there. `orchestration`, which is imported by the process that
starts the others, uses the standard library only; what touches torch runs in children.
"""

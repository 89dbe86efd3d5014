"""What travels in a job: builds, verifies and times a kernel on the machine that has the GPU.

Needs Python 3.10, torch and nvcc there. Modules that the orchestrating process imports (`main`,
`manifest`, `building`, `children`, `results`, `checklist`) use the standard library only; what
touches torch runs in children.
"""

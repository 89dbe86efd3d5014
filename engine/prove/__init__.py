"""What is said of all sizes, proven for all sizes: a solver, and CuIR's whole numbers in its terms.

Imports no torch: proofs need neither tensors nor runs.
"""

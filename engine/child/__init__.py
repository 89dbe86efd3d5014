"""One warm child process that holds torch: it traces specs and runs CuIR and oracles.

The processes that people look at never import torch; what crashes, hangs or eats memory here is a
gate without a verdict there.
"""

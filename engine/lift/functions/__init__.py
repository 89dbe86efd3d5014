"""Bodies of functions: statements and expressions to CuIR."""

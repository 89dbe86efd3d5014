"""What words mean: the catalogue, constants, headers, names in scope."""

"""Instructions by family; each module's table `OPS` gives a decoder by the instruction's name."""

"""The gates: G1 and G2 run CuIR on the CPU, G3 judges the lowered source."""

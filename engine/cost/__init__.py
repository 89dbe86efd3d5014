"""A static cost model: from CuIR, shapes and a card's data to cycles, a bound and TFLOP/s."""

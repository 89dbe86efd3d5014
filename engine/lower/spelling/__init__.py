"""CuIR as C++: templates, kinds of values, signs and declarations."""

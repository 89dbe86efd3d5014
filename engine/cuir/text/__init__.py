"""CuIR as text: quoted with holes, and its documentation."""

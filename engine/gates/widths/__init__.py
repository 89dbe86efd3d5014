"""Whether whole numbers stay within their types, and sizes exact in floating point."""

"""A spec as Python: its file, its signature and declarations, and its function to call."""

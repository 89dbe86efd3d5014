"""Python files that every exported package carries as they are: standard library and torch only."""

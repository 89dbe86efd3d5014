"""Two modules and what lies between: difference, patch, merge, renaming, ids."""

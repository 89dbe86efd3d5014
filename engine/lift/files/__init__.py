"""A kernel's package and source as a whole: its top level, its launch, its meanings."""

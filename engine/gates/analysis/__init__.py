"""What the text of a module says before anything runs: its names, sizes and conditions."""

"""Where a wrong target goes wrong: its first wrong op, and a counterexample in words."""

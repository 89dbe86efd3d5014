"""What every rule stands on: the case it looks at, the places it edits, the words it uses."""

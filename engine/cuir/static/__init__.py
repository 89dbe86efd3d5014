"""What is known of a module before it runs: types, calls, facts, limits."""

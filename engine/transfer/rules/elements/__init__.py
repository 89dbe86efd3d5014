"""Rules for the value of each element: score, exponential, arithmetic, staging."""

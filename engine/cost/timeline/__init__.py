"""One block of a kernel over time: its ops one after another, simulated, and as data."""

"""PTX that runs on a CPU: what nvcc emits, parsed, and executed for every thread of every block."""

"""What ptxas and the disassemblers say of a kernel, and what it lost."""

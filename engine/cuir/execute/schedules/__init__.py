"""Blocks, their parts and who goes on next."""

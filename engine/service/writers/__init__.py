"""Proposals of people and agents, and meanings that they write."""

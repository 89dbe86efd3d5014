"""Finds the meanings of a foreign kernel's places, by observing and running it."""

"""Runs of a module on the deck: its subject and cases, and outputs held against the spec's."""

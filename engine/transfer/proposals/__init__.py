"""Proposals as hunks that a person decides on, and their decisions carried to another one."""

"""Screens: each a page of code over the view models and the session service."""

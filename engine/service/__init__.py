"""The session service: one adaptation, step by step, for the app and the command line alike."""

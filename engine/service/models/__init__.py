"""A session's model: what is sent, its trials, and the gates that its edits meet."""

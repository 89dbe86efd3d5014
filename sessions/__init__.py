"""Sessions: the event model, the git-backed store and replay. Never imports torch or textual.

`import sessions` loads nothing heavy; git itself is imported on the store's first command.
"""

"""The folder of one build: translation units, ninja file, cache and pace."""

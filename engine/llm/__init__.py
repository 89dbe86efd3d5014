"""Talking to a language model: one client for any OpenAI-compatible server, recording, replay."""

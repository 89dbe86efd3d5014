"""A model's edits of the target: prompts from typed data, strict application, a judged loop."""

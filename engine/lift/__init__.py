"""From an expert's CUDA text to CuIR: structure by tree-sitter, meaning by a catalogue of patterns."""

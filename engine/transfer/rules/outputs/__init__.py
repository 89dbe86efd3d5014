"""Rules for what follows the softmax's weights: normaliser, sink, output, LSE."""

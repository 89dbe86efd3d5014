"""The attention in a trace: roles of its inputs, score, mask and weights; what is none."""

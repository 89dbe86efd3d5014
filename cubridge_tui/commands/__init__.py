"""One module per command of `cubridge`: `configure(parser)` and `run(args) -> int`."""

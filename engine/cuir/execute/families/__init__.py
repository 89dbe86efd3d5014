"""What each op does, one file a family of `engine.cuir.ops`."""

"""The warm child that holds torch: what it can be asked, and its side of the pipe."""

"""Sessions over time: another kernel version, staleness, the same work done again."""

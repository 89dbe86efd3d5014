"""Rules for the mask: keep predicates, tile schedules, rows without keys."""

"""Text as a terminal may show it: safe glyphs, columns, highlighting of what is visible."""

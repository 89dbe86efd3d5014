"""What names and memory hold while a program runs."""

"""What a person sees before deciding: hunks in words, costs, masks as pictures."""

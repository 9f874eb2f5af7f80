"""The shape of a completion, whatever it says: its text in, a score for layout, length or repetition out."""

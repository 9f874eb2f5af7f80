"""The policy: names in, a tokenizer and weights out, and the way back into a folder."""

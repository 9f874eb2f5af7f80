"""The verifier and the reward `math`: a completion and the gold in, whether they are the same mathematics out."""

"""The reward `judge`: a completion and a rubric in, the score of a language model out."""

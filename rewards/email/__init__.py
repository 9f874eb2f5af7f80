"""The e-mail rubric and its parts: a completion and the row's expectations in, scores out."""

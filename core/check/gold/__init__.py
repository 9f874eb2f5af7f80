"""Gold solutions, played: an environment in, a report on the solution of every row out."""

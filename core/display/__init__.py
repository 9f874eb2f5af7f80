"""Shows a run to a person: on a terminal, in a notebook, as the picture of its curves."""

"""Why does it not work here: this machine in, a line for each thing that a run needs out."""

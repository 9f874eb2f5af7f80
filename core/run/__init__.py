"""One run from its first line to its last: the job, its books and display, the watch over its health and canaries."""

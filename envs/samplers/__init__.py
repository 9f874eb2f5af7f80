"""Built-in samplers: what became of rows in, the rows to ask next out."""

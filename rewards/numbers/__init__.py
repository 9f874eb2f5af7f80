"""Numbers and quantities in what people and models write: text in, exact values out."""

"""Small things about text, random numbers and figures that every folder may use."""

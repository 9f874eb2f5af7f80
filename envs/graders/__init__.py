"""Graders of other libraries: requests in, what their graders say out, from sandboxed processes of their own."""

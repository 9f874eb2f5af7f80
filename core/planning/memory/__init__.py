"""Memory before anything is loaded: shapes and settings in, bytes and settings that fit out."""

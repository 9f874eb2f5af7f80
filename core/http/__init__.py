"""Serves HTTP with starlette and uvicorn, within limits that hold against hostile callers; loaded by servers alone."""

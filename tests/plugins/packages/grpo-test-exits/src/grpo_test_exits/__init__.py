"""Ends the process on import, as a plugin does that gives up in its own way."""

import os

os._exit(3)

"""Keeps the warnings of libraries off the screen, except where the user has set them."""

from __future__ import annotations

import os
import sys

VERBOSITY = {
    "transformers": "TRANSFORMERS_VERBOSITY",
    "huggingface_hub": "HF_HUB_VERBOSITY",
    "datasets": "DATASETS_VERBOSITY",
}
# They say much where a plugin configures the root logger, which means its own lines.
TALKATIVE = (
    "matplotlib",
    "PIL",
    "urllib3",
    "httpcore",
    "httpx",
    "filelock",
    "fsspec",
    "asyncio",
    "accelerate",
    "torch",
)


def silence_unloaded() -> None:
    """Has libraries that are imported from now on log errors only."""
    for variable in VERBOSITY.values():
        os.environ.setdefault(variable, "error")


def silence_loggers() -> None:
    """Has those that were imported log errors only, and others no more than warnings."""
    import logging

    for name, variable in VERBOSITY.items():
        if os.environ.get(variable, "error") == "error" and name in sys.modules:
            logging.getLogger(name).setLevel(logging.ERROR)
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)

"""Imports a module that comes with an extra, or says how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from grpo.plugins.errors import PluginNotFound


def imported(module: str, extra: str, wanted: str) -> Any:
    """Imports a module of an extra. Raises PluginNotFound if it is not installed, or cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        missing = error.name is not None and error.name.partition(".")[0] == package
        why = "which is not installed" if missing else f"which cannot be imported ({error})"
        raise PluginNotFound(
            f"{wanted} comes with {package}, {why}. Install it with: pip install 'grpo-kit[{extra}]'"
        ) from error

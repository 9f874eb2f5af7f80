"""What is shown to others names no folder of this machine: settings of a run in, the same without paths out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What stands where a path can begin, up to what ends one in a SPEC: `:` before options, `,` between them.
_FOLDERS = re.compile(r"(?:(?<![\w./~\\-])(?:~?/|\.{1,2}/)|\b[A-Za-z]:\\)(?:[^\\/:,;'\"\n]+[\\/])*")
_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def without_folders(value: Any) -> Any:
    """Returns a value of JSON with the folders taken out of paths in its texts; names of the hub stay."""
    if isinstance(value, str):
        return value if _HUB.fullmatch(value) or "://" in value else _FOLDERS.sub("", value)
    if isinstance(value, Mapping):
        return {name: without_folders(one) for name, one in value.items()}
    return [without_folders(one) for one in value] if isinstance(value, (list, tuple)) else value

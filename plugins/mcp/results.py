"""Writes what a tool of an MCP server returned as the text that the policy is shown."""

from __future__ import annotations

import json
from typing import Any

_CUT = "\n[...]\n"
_UNSEEN = "[{what} that cannot be shown here]"


def text_of(result: Any, shown: int) -> str:
    """Returns the text of a `CallToolResult`; of an error as an object with the key `error`.

    Args:
        result: what the server answered.
        shown: characters at most, of the beginning and the end.
    """
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = shortened("\n".join(parts), shown)
    if result.is_error:
        return error_text(text or "the tool failed and gave no reason", shown)
    return text or "(the tool returned nothing)"


def error_text(reason: str, shown: int) -> str:
    """Returns an error as the policy is shown it."""
    return json.dumps({"error": shortened(reason, shown)}, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """Returns the beginning and the end of a text that has more characters than `most`."""
    return text if len(text) <= most else text[: most // 2] + _CUT + text[most // 2 - most :]


def _part(block: Any) -> str:
    """Returns a part of a result as text; what is no text is refused in words."""
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind in ("image", "audio"):
        return _UNSEEN.format(what=f"an {kind} ({block.mime_type})")
    if kind == "resource_link":
        return f"[a link to the resource {block.name}: {block.uri}]"
    if kind == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    if kind == "resource":
        return _UNSEEN.format(what=f"a file ({block.resource.mime_type or 'of bytes'})")
    return _UNSEEN.format(what=f"a part of the kind {kind}")

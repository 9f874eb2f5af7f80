"""Escapes text from models and datasets into HTML cells for notebooks, in the page's colours, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from grpo.core.text.printable import printable

CELL = "text-align:left;vertical-align:top;padding:0.1em 1em 0.1em 0"
AS_IT_IS = "tex2jax_ignore mathjax_ignore"  # a dollar sign in a completion begins no formula


def table(rows: Sequence[Sequence[Any]], heads: Sequence[str] = ()) -> str:
    """Returns a table; without heads, the first cell of each row is its head."""
    head = f"<tr>{''.join(_cell(name, 'th') for name in heads)}</tr>" if heads else ""
    body = "".join(
        f"<tr>{''.join(_cell(value, 'th' if not heads and not at else 'td') for at, value in enumerate(row))}</tr>"
        for row in rows
    )
    return f'<table class="{AS_IT_IS}" style="border-collapse:collapse">{head}{body}</table>'


def block(title: str, text: str) -> str:
    """Returns a text as it is, in a frame with a title."""
    style = "white-space:pre-wrap;border:1px solid #8888;border-radius:4px;padding:0.5em;margin:0.2em 0;max-height:20em"
    return (
        f'<div class="{AS_IT_IS}"><div><b>{shown(title)}</b></div>'
        f'<pre style="{style};overflow:auto">{shown(text)}</pre></div>'
    )


def line(text: str, style: str = "") -> str:
    return f'<div class="{AS_IT_IS}" style="{escape(style)}">{shown(text)}</div>'


def bar(done: int, total: int) -> str:
    share = 100 * min(1.0, done / max(total, 1))
    return (
        '<div style="height:0.5em;width:24em;max-width:100%;border:1px solid #8888;border-radius:4px;overflow:hidden">'
        f'<div style="height:100%;width:{share:.1f}%;background:#0072B2"></div></div>'
    )


def shown(value: Any) -> str:
    """Returns a value as text that a page shows and never obeys."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(printable(text), quote=True)


def _cell(value: Any, tag: str) -> str:
    return f'<{tag} style="{CELL}"><span style="white-space:pre-wrap">{shown(value)}</span></{tag}>'

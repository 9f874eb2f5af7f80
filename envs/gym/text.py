"""Writes observations of gymnasium environments as text.

`ansi` has the environment draw itself and turns colours into brackets: a coloured background is `[x]`, a bright or bold
letter `(x)`, any other coloured one `{x}`. `values` writes the observation part by part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_COLOURED = re.compile(r"\x1b\[(?P<codes>[\d;]*)m(?P<text>.*?)\x1b\[0?m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_BACKGROUND = re.compile(r"(?:^|;)(?:4[0-7]|10[0-7])(?:;|$)")
_BOLD = re.compile(r"(?:^|;)1(?:;|$)")
_MOST_NUMBERS = 200
_MOST_TEXT = 4000  # characters of an observation
_UNSEEN = ("unseen", "empty", "wall", "floor")


def shortened(text: str, most: int = _MOST_TEXT) -> str:
    """Returns at most `most` characters of a text, and how many there were."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"


def drawn(env: Any) -> str:
    """Returns what the environment draws of itself. Raises TypeError if it draws no text."""
    picture = env.render()
    if not isinstance(picture, str):
        raise TypeError(f"render() with render_mode 'ansi' returned a {type(picture).__name__}, not text")
    return _ESCAPE.sub("", _COLOURED.sub(_bracketed, picture)).strip("\n")


def written(env: Any, observation: Any, fields: Sequence[str] = ()) -> str:
    if isinstance(observation, Mapping):
        parts = dict(observation)
        if hasattr(env, "agent_view_size") and "image" in parts:
            parts["image"] = _grid_text(parts["image"])
            parts = {{"image": "in sight"}.get(name, name): value for name, value in parts.items()}
            parts["direction"] = ("east", "south", "west", "north")[int(parts["direction"])]
        return "\n".join(f"{name}: {_value(value)}" for name, value in parts.items())
    if isinstance(observation, tuple) and len(fields) == len(observation):
        return "\n".join(f"{name}: {_value(value)}" for name, value in zip(fields, observation, strict=True))
    return _value(observation)


def _bracketed(match: re.Match[str]) -> str:
    codes, text = match["codes"], match["text"]
    if _BACKGROUND.search(codes):
        return f"[{text}]"
    return f"({text})" if _BOLD.search(codes) else f"{{{text}}}"


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_value(part) for part in value)
    if hasattr(value, "tolist"):
        flat = value.ravel().tolist() if getattr(value, "ndim", 0) > 1 else value.tolist()
        if isinstance(flat, list):
            shown = ", ".join(_number(number) for number in flat[:_MOST_NUMBERS])
            return shown + (f" ... ({len(flat)} numbers)" if len(flat) > _MOST_NUMBERS else "")
        value = flat
    return _number(value)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _grid_text(image: Any) -> str:
    """Lists minigrid's egocentric grid `[x, y, (object, colour, state)]`, the nearest first."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    width, height = image.shape[:2]
    parts: list[tuple[int, str]] = []
    for x in range(width):
        for y in range(height):
            thing, colour, state = (int(number) for number in image[x, y])
            name = IDX_TO_OBJECT[thing]
            ahead, right = height - 1 - y, x - width // 2
            if name in _UNSEEN and not (name == "wall" and (ahead, right) == (1, 0)):
                continue
            if name == "door":
                name = f"{('open', 'closed', 'locked')[state]} door"
            where = ", ".join(
                text
                for text in (
                    f"{ahead} ahead" if ahead else "",
                    f"{abs(right)} to the {'right' if right > 0 else 'left'}" if right else "",
                )
                if text
            )
            thing_text = name if name == "wall" else f"{IDX_TO_COLOR[colour]} {name}"
            parts.append((ahead + abs(right), f"{thing_text} ({where or 'in your hands'})"))
    return "; ".join(text for _, text in sorted(parts)) or "nothing"

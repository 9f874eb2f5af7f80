"""Draws docs/architecture.svg, the way of a row: boxes and arrows at fixed places in, one SVG for light and dark out.

    python docs/draw_architecture.py

A class names each colour, and the picture brings both palettes: a page that shows it as an image needs no second one.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

_WIDTH, _HEIGHT = 960, 640
_COLUMNS = (32, 364, 696)  # left edges
_BOX = 232
_STYLE = """
  .ground { fill: #ffffff } .area { fill: #f6f8fa; stroke: #d1d9e0 } .box { fill: #ffffff; stroke: #afb8c1 }
  .ours { fill: #ddf4ff; stroke: #54aeff } .line { stroke: #59636e; fill: none } .tip { fill: #59636e }
  .proof { stroke: #1a7f37; fill: none } .proof-tip { fill: #1a7f37 }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #59636e }
  .name { font: 600 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
  .flow { fill: #1f2328 } .proven { fill: #1a7f37 } .small { font-size: 12px }
  .area, .box, .ours { stroke-width: 1 } .line, .proof { stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } .area { fill: #151b23; stroke: #3d444d } .box { fill: #0d1117; stroke: #656c76 }
    .ours { fill: #121d2f; stroke: #1f6feb } .line { stroke: #9198a1 } .tip { fill: #9198a1 }
    .proof { stroke: #3fb950 } .proof-tip { fill: #3fb950 } .proven { fill: #3fb950 }
    text { fill: #9198a1 } .name, .flow { fill: #f0f6fc }
  }
"""
_SUMMARY = (
    "A configuration is decided and refused by planning before a policy is loaded. In each step environments turn rows "
    "into prompts, rollouts turn prompts into completions and actions into observations, scoring turns completions "
    "into outcomes, and training turns outcomes into advantages, a loss and a step. The new weights go back to the "
    "rollouts, with a proof that they arrived. The run directory keeps a record of all of it."
)


def _area(x: int, y: int, width: int, height: int, title: str) -> str:
    frame = f'<rect class="area" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>'
    return f'{frame}<text class="small" x="{x + 16}" y="{y + 24}">{escape(title)}</text>'


def _box(x: int, y: int, name: str, *lines: str, kind: str = "box", width: int = _BOX) -> str:
    """A box with a name and lines of text, of a height that they need."""
    height = 24 + 20 * (1 + len(lines))
    texts = [f'<text class="name" x="{x + 16}" y="{y + 27}">{escape(name)}</text>']
    texts += [f'<text x="{x + 16}" y="{y + 48 + 19 * i}">{escape(line)}</text>' for i, line in enumerate(lines)]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>' + "".join(texts)


def _arrow(*points: tuple[int, int], kind: str = "line", tip: str = "tip") -> str:
    """A line along the points, with a tip at the last."""
    (x0, y0), (x1, y1) = points[-2:]
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    back, side = (x1 - 8 * dx, y1 - 8 * dy), (4 * dy, 4 * dx)
    corners = [(x1, y1), (back[0] - side[0], back[1] - side[1]), (back[0] + side[0], back[1] + side[1])]
    ends = (*points[:-1], back)
    route = " ".join(f"{'M' if i == 0 else 'L'}{x} {y}" for i, (x, y) in enumerate(ends))
    head = " ".join(f"{x},{y}" for x, y in corners)
    return f'<path class="{kind}" d="{route}"/><polygon class="{tip}" points="{head}"/>'


def _label(x: int, y: int, text: str, kind: str = "flow", anchor: str = "middle") -> str:
    return f'<text class="{kind} small" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def picture() -> str:
    """Returns the SVG."""
    left, middle, right = _COLUMNS
    gaps = (left + _BOX, middle), (middle + _BOX, right)
    centre = [(start + end) // 2 for start, end in gaps]
    parts = [f'<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}" rx="12"/>']

    # Before a model loads.
    parts += [
        _box(left, 24, "core/config", "files, --set and flags", "become one checked value"),
        _box(middle, 24, "core/planning", "decides, refuses and counts", "memory, before a model loads"),
        _box(right, 24, "core/policy", "tokenizer, weights, adapter", "and the way back to a folder"),
    ]
    for (start, end), x, text in zip(gaps, centre, ("settings", "plan"), strict=True):
        parts += [_arrow((start + 6, 66), (end - 6, 66)), _label(x, 57, text)]
    parts.append(_arrow((right + _BOX // 2, 114), (right + _BOX // 2, 138)))

    # Each step: the upper row from left to right, the lower one back.
    upper, lower = 246, 412
    parts.append(_area(16, 140, _WIDTH - 32, 374, "each step"))
    parts += [
        _box(left, 176, "envs/ or a plugin", kind="ours"),
        _box(right, 176, "rewards/ or a plugin", kind="ours"),
        _arrow((left + _BOX // 2, 222), (left + _BOX // 2, upper - 2)),
        _arrow((right + _BOX // 2, 222), (right + _BOX // 2, upper - 2)),
        _box(left, upper, "core/env", "rows become episodes,", "actions get observations"),
        _box(middle, upper, "core/rollout", "a group of completions each,", "by transformers or vLLM"),
        _box(right, upper, "core/scoring", "all rewards at once, each", "in its own time limit"),
        _arrow((gaps[0][0] + 6, upper + 30), (gaps[0][1] - 6, upper + 30)),
        _label(centre[0], upper + 21, "prompts"),
        _arrow((gaps[0][1] - 6, upper + 58), (gaps[0][0] + 6, upper + 58)),
        _label(centre[0], upper + 77, "actions"),
        _arrow((gaps[1][0] + 6, upper + 42), (gaps[1][1] - 6, upper + 42)),
        _label(centre[1], upper + 33, "completions"),
    ]
    parts += [
        _box(left, lower, "core/train: a step", "gradients move the policy;", "a doubtful step is done again"),
        _box(middle, lower, "core/train: the loss", "log-probabilities without", "logits (kernels/)"),
        _box(right, lower, "core/train: advantages", "relative to the group; a", "failure is never a zero"),
        _arrow((right + _BOX // 2, upper + 86), (right + _BOX // 2, lower - 2)),
        _label(right + _BOX // 2 - 12, (upper + 84 + lower) // 2 + 4, "scores, abstentions, failures", anchor="end"),
        _arrow((gaps[1][1] - 6, lower + 42), (gaps[1][0] + 6, lower + 42)),
        _label(centre[1], lower + 33, "advantages"),
        _arrow((gaps[0][1] - 6, lower + 42), (gaps[0][0] + 6, lower + 42)),
        _label(centre[0], lower + 33, "gradients"),
    ]
    turn = (upper + 84 + lower) // 2
    at, to = left + _BOX // 2, middle + _BOX // 2
    parts += [
        _arrow((at, lower - 2), (at, turn), (to, turn), (to, upper + 86), kind="proof", tip="proof-tip"),
        _label((at + to) // 2, turn - 9, "new weights, with a proof that they arrived", kind="proven"),
    ]

    # What remains.
    parts += [
        _arrow((left + _BOX // 2, 516), (left + _BOX // 2, 544)),
        _arrow((right + _BOX // 2, 516), (right + _BOX // 2, 544)),
        _box(
            left,
            546,
            "core/record",
            "every rollout, outcome and metric, in a run directory that survives kill -9",
            width=564,
        ),
        _box(right, 546, "core/run", "the display, health, canaries"),
    ]
    title = f"<title>The way of a row</title><desc>{escape(_SUMMARY)}</desc>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("architecture.svg").write_text(picture(), encoding="utf-8")

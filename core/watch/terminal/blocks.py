"""What the terminal shows of rollouts: their record in, blocks of text out, of which none is ever read as markup.

A block of kind QUOTED holds what a policy, an environment or a data set wrote. It stands behind a line of its own, so
that no text can pass for something that this program says.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual.content import Content

from grpo.core.record.browse import FINISHED, Rollout, ShownOutcome
from grpo.core.text.printable import counted, one_line, printable

HEAD, LINE, QUOTED = "head", "line", "quoted"
Block = tuple[str, Content]
LONGEST = 20_000  # characters of a text that are laid out
MOST_WORDS = 4_000  # that are compared; the time grows with their square
FEW_TOKENS = 4_000
LEVELS = "▁▂▃▄▅▆▇█"
SURPRISES = ((-3.0, "reverse"), (-1.5, "bold underline"), (-0.5, "underline"))  # nats, the least probable first
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def number(value: float | None) -> str:
    """Returns a number with four digits, a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def signed(value: float | None) -> str:
    """Returns a number with its sign."""
    return "-" if value is None else f"{value:+.3g}"


def spark(values: Sequence[float | None], width: int) -> str:
    """Returns a line of blocks, the higher the greater; values that share a cell are averaged, gaps stay empty."""
    width = max(1, min(width, len(values)))
    cells: list[float | None] = []
    for cell in range(width):
        own = values[cell * len(values) // width : (cell + 1) * len(values) // width]
        there = [value for value in own if value is not None and math.isfinite(value)]
        cells.append(sum(there) / len(there) if there else None)
    known = [cell for cell in cells if cell is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    middle = 0 if high > low else len(LEVELS) // 2
    return "".join(" " if cell is None else LEVELS[middle + round((cell - low) * scale)] for cell in cells)


def one(
    step: int,
    rollout: Rollout,
    weights: Mapping[str, float],
    *,
    other: Rollout | None = None,
    tokens: Sequence[tuple[str, float | None]] | None = None,
    through: str = "",
) -> Iterator[Block]:
    """Yields what there is to read of one rollout.

    Args:
        step: of the run.
        rollout: with its texts.
        weights: of the rewards.
        other: a rollout to compare its completion with.
        tokens: of the completion, with their log-probabilities, to show it by.
        through: what became of the same prompt at other steps.
    """
    yield HEAD, Content(f"step {step}, group {rollout.group}, #{rollout.number}")
    yield LINE, _facts(rollout)
    yield from _outcomes(rollout, weights)
    if "failure" in rollout.info:
        yield HEAD, Content("The environment failed")
        yield QUOTED, quoted(rollout.info["failure"])
    yield HEAD, Content("Prompt")
    for message in rollout.prompt:
        yield from _message(one_line(str(message.get("role", "")), 60), message)
    if other is not None:
        yield HEAD, Content(f"Completion, and how #{other.number} of its group differs (reward {number(other.reward)})")
        yield LINE, Content.assemble(("only here", "underline"), "  ", ("only there", "strike dim"))
        yield QUOTED, difference(rollout.completion, other.completion)
    elif tokens is not None:
        yield HEAD, Content("Completion by token")
        yield (
            LINE,
            Content.assemble(
                "nats a token: ", ("below -0.5", "underline"), "  ", ("-1.5", "bold underline"), "  ", ("-3", "reverse")
            ),
        )
        yield QUOTED, by_token(tokens)
    else:
        yield HEAD, Content("Completion")
        yield from _conversation(rollout)
    if through:
        yield LINE, Content(through)
    if rollout.columns:
        yield HEAD, Content("The row that the rewards read")
        for name, value in rollout.columns.items():
            yield LINE, Content(one_line(str(name), 60))
            yield QUOTED, quoted(value)
    if rollout.info:
        yield HEAD, Content("What the environment reported")
        yield QUOTED, quoted(dict(rollout.info))


def side_by_side(step: int, members: Sequence[Rollout], open_one: int) -> Iterator[Block]:
    """Yields a group, each completion with what it got; the one of number `open_one` is marked."""
    yield HEAD, Content(f"step {step}, group {members[0].group}: {counted(len(members), 'rollout')}")
    for message in members[0].prompt:
        yield from _message(one_line(str(message.get("role", "")), 60), message)
    for rollout in members:
        mark = "> " if rollout.number == open_one else ""
        yield HEAD, Content(f"{mark}#{rollout.number}")
        yield LINE, _facts(rollout)
        yield from _conversation(rollout)


def quoted(value: Any, longest: int = LONGEST) -> Content:
    """Returns a text of a run, or the JSON of another value, without what a terminal would obey."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    cut = len(text) - longest
    shown = printable(text[:longest]).expandtabs(4).strip("\n")
    if not shown.strip():
        return Content.styled("(nothing to see)" if text else "(empty)", "dim")
    content = Content(shown)
    if cut > 0:
        content += Content.styled(f"\n… {cut} more characters; grpo show --json has them", "dim")
    return content


def difference(text: str, other: str) -> Content:
    """Returns a text with what is only in it underlined, and what is only in the other one struck out beside it."""
    ours, theirs = (_WORDS.findall(printable(one).expandtabs(4))[:MOST_WORDS] for one in (text, other))
    parts: list[tuple[str, str]] = []
    for how, a, b, c, d in difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        if how == "equal":
            parts.append(("".join(ours[c:d]), ""))
        else:
            parts += [("".join(theirs[a:b]), "strike dim"), ("".join(ours[c:d]), "underline")]
    return Content.assemble(*parts)


def by_token(tokens: Sequence[tuple[str, float | None]]) -> Content:
    """Returns a completion token by token, marked the more the less probable it was when it was sampled."""
    parts = [(printable(text), _surprise(nats)) for text, nats in tokens[:FEW_TOKENS]]
    if len(tokens) > FEW_TOKENS:
        parts.append((f"\n… {len(tokens) - FEW_TOKENS} more tokens", "dim"))
    return Content.assemble(*parts)


def _surprise(nats: float | None) -> str:
    return next((style for most, style in SURPRISES if nats is not None and nats < most), "")


def _facts(rollout: Rollout) -> Content:
    finish = FINISHED.get(rollout.finish_reason, one_line(str(rollout.finish_reason), 40))
    parts: list[str | tuple[str, str]] = [f"reward {number(rollout.reward)}  advantage {signed(rollout.advantage)}  "]
    if rollout.right is not None:
        parts += [("right", "ansi_green") if rollout.right else ("wrong", "ansi_yellow"), "  "]
    parts.append(f"{counted(rollout.tokens, 'token')}, {finish}")
    if rollout.env:
        parts.append(f"  {one_line(rollout.env, 60)}")
    return Content.assemble(*parts)


def _outcomes(rollout: Rollout, weights: Mapping[str, float]) -> Iterator[Block]:
    width = min(24, max((len(one_line(name, 24)) for name in rollout.outcomes), default=0))
    for name, found in rollout.outcomes.items():
        weight = f"  x {weights[name]:g}" if name in weights else ""
        yield LINE, Content.assemble(f"  {one_line(name, 24).ljust(width)}  ", _said(found), (weight, "dim"))
        if found.reason:
            yield QUOTED, quoted(found.reason, 2_000)


def _said(found: ShownOutcome) -> tuple[str, str]:
    if found.outcome == "failure":
        return "failed", "bold ansi_red"
    return ("abstained", "ansi_yellow") if found.score is None else (number(found.score), "ansi_green")


def _conversation(rollout: Rollout) -> Iterator[Block]:
    """Yields the completion, or turn by turn what the policy said and what it was told."""
    if len(rollout.messages) <= 1:
        yield QUOTED, quoted(rollout.completion)
        return
    told = rollout.info.get("rewards")
    rewards = rollout.turn_rewards or (told if isinstance(told, list) else ())
    worth = rollout.turn_advantages or ()
    turn = 0
    for message in rollout.messages:
        if message.get("role") == "assistant":
            earned = f"  reward {_any_number(rewards[turn])}" if turn < len(rewards) else ""
            earned += f"  advantage {signed(worth[turn])}" if turn < len(worth) else ""
            turn += 1
            yield from _message(f"turn {turn}{earned}", message)
        else:
            yield from _message("tool" if message.get("role") == "tool" else "environment", message)


def _message(title: str, message: Mapping[str, Any]) -> Iterator[Block]:
    yield LINE, Content.styled(title, "dim")
    content = message.get("content")
    yield QUOTED, quoted("" if content is None else content)
    for name, value in message.items():
        if name not in ("role", "content") and value not in (None, ""):
            yield LINE, Content.styled(one_line(str(name), 60), "dim")
            yield QUOTED, quoted(value)


def _any_number(value: object) -> str:
    """What an environment reported as a reward, which may be anything."""
    return number(value) if isinstance(value, float) else one_line(str(value), 20)

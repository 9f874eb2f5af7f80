"""Scores how far a completion keeps to a layout of tagged blocks."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case
from grpo.rewards.answer_text import visible

Variant = Literal[
    "blocks",
    "trl.think_format_reward",
    "open_r1.format_reward",
    "open_r1.tag_count_reward",
    "open_r1.reasoning_steps_reward",
    "open_r1.code_format_reward",
]

_NAME = lazy_pattern(r"[A-Za-z][\w.-]*+")
_ANSWER_END = lazy_pattern(r"\n</answer>$", re.MULTILINE)
_STEP = lazy_pattern(r"Step \d++:|\A\d++\.|\n-|\n\*|First,|Second,|Next,|Finally,")
_GOOD = "<reasoning>\n6*12 = 72\n</reasoning>\n<answer>\n72\n</answer>\n"
_CODE = "<think>\n6*12\n</think>\n<answer>\n```python\nprint(72)\n```\n</answer>"
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0\U0001d159"  # Hangul fillers, the empty Braille cell and note head
_THOUGHT = "<think>\n6*12 = 72\n</think>\n<answer>\n72\n</answer>"


@reward(
    version=3,
    as_published=["variant"],
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case(_GOOD, {}, 1.0),
        Case("<reasoning>6*12</reasoning> so <answer>72</answer>", {}, 2 / 3),
        Case("<answer>72</answer>", {}, 1 / 3),
        Case("72", {}, 0.0),
        Case("", {}, 0.0),
        Case("<think>6*12</think>\n72", {}, 1.0, {"tags": "think"}),
        Case("<work>6*12<done><SOLUTION>72</SOLUTION>", {}, 1.0, {"tags": "work:done/SOLUTION"}),
        Case(_THOUGHT, {}, 1.0, {"variant": "trl.think_format_reward"}),
        Case(_THOUGHT, {}, 1.0, {"variant": "open_r1.format_reward"}),
        Case(_THOUGHT, {}, 1.0, {"variant": "open_r1.tag_count_reward"}),
        Case("First, 6*12. Next, add. Finally, 72.", {}, 1.0, {"variant": "open_r1.reasoning_steps_reward"}),
        Case(_CODE, {}, 1.0, {"variant": "open_r1.code_format_reward"}),
        Case(_CODE, {}, 0.0, {"variant": "open_r1.code_format_reward", "language": "javascript"}),
    ],
)
def format(
    completion: str,
    *,
    tags: str = "reasoning/answer",
    partial: bool = True,
    variant: Variant = "blocks",
    language: str = "python",
) -> float:
    """How much of a layout of tagged blocks a completion keeps, from 0 to 1.

    With n blocks, the score is (good blocks + layout) / (n + 1). A block is good when its opening and its closing tag
    each occur exactly once, in that order, with something visible between. The layout counts 1 when
    all blocks are good and stand in the order given, with nothing but blank space before, between and after them; a
    single block may have any text around it.

    Args:
        completion: the text.
        tags: the blocks in order, parted by "/": `reasoning/answer`, `think`; a block whose two tags have names of
            their own is written with ":", as in `start_working_out:end_working_out/SOLUTION`.
        partial: False pays 1 for the whole layout and 0 for anything less.
        variant: "blocks" as above, or a published function, scored exactly as published: trl.think_format_reward (one
            `<think>`, first, closed: 1), open_r1.format_reward (think and answer blocks, each tag on its own line: 1),
            open_r1.tag_count_reward (0.25 for each of the four tags with its newlines that occurs once),
            open_r1.reasoning_steps_reward (signs of steps, three or more: 1), open_r1.code_format_reward (as
            open_r1.format_reward, with a fenced block of the language in the answer: 1).
        language: of the fenced block, for open_r1.code_format_reward.

    Raises:
        OptionError: `tags` names no blocks, or something that is no tag name.
    """
    match variant:
        case "trl.think_format_reward":
            return _trl_think(completion)
        case "open_r1.format_reward":
            return _open_r1_format(completion)
        case "open_r1.code_format_reward":
            return _open_r1_format(completion, f"```{language}", "```")
        case "open_r1.tag_count_reward":
            tags_with_newlines = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
            return 0.25 * sum(completion.count(tag) == 1 for tag in tags_with_newlines)
        case "open_r1.reasoning_steps_reward":
            return min(1.0, len(_STEP.findall(completion)) / 3)
    score = _blocks(completion, _tag_pairs(tags))
    return score if partial or score == 1.0 else 0.0


def _tag_pairs(tags: str) -> list[tuple[str, str]]:
    pairs = []
    for block in tags.split("/"):
        first, colon, second = block.strip().partition(":")
        if not _NAME.fullmatch(first) or (colon and not _NAME.fullmatch(second)):
            raise OptionError(
                f"format: tags={tags!r} is not a list of tag names (at {block!r}). Part the blocks by '/' and write "
                "names without brackets, for example tags=think/answer or "
                "tags=start_working_out:end_working_out/SOLUTION."
            )
        pairs.append((f"<{first}>", f"<{second}>" if colon else f"</{first}>"))
    return pairs


def _blocks(text: str, pairs: list[tuple[str, str]]) -> float:
    good = 0
    outside = []
    reached = 0
    for opening, closing in pairs:
        start, end = text.find(opening), text.find(closing)
        inside = start + len(opening)
        if text.count(opening) != 1 or text.count(closing) != 1 or not _shows(text[inside:end]):
            continue
        good += 1
        if start >= reached:
            outside.append(text[reached:start])
            reached = end + len(closing)
    outside.append(text[reached:])
    in_order = len(outside) == len(pairs) + 1
    layout = in_order and (len(pairs) == 1 or not "".join(outside).strip())
    return (good + layout) / (len(pairs) + 1)


def _shows(text: str) -> bool:
    """Spaces, controls, combining marks and HTML comments do not show."""
    shown = html.unescape(visible(text))
    return any(
        unicodedata.category(character)[0] not in "ZCM" and character not in _BLANK_LETTERS for character in shown
    )


def _trl_think(text: str) -> float:
    """`<think>` first and once, and a `</think>` after it."""
    tag = "<think>"
    once = text.startswith(tag) and text.find(tag, len(tag)) < 0
    return 1.0 if once and text.find("</think>", len(tag)) >= 0 else 0.0


def _open_r1_format(text: str, *inside: str) -> float:
    """Both blocks, each tag alone on its line, from the start, and these texts in order in the second; text may follow.

    Taking the first place for each part leaves the most room for the rest.
    """
    at = 0
    for part in ("<think>\n", "\n</think>\n<answer>\n", *inside):
        place = text.find(part, at)
        if place < 0 or (at == 0 and place > 0):
            return 0.0
        at = place + len(part)
    return 1.0 if _ANSWER_END.search(text, at) else 0.0

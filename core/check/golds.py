"""Chooses a plugin's gold examples among its cases, or makes them where no case states its row's gold answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo.core.check.answers import ANSWER_NAMES, LAYOUTS, Example, find_slot, gold_text, last_number
from grpo.core.check.report import Findings
from grpo.core.check.scores import Bound, ExampleResult, note_failure, score_examples
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.types import Case

_MOST_ROWS = 4
_MOST_MADE = 3
_LIKE_BEFORE = 0.25  # the part of its score that a gold keeps when options change, unless they change what is right


def find_golds(
    bound: Bound,
    scorer: Scorer,
    declared: Sequence[Case],
    matching: Sequence[Case],
    answer: str | None,
    findings: Findings,
) -> tuple[list[tuple[Example, float]], list[Example]]:
    """Returns the examples that deserve the highest score, each with its score, and the others.

    With options set, or for a reward of groups, whose cases score a text among others, the gold is what scores highest
    here and more than silence. `answer`: the column with the gold answer; None to find it out.
    """
    texts: dict[int, tuple[Example, ExampleResult]] = {}
    for case in (*matching, *declared) if bound.options else matching:
        for text, expect in zip(case.texts, case.expected, strict=True):
            example = Example(text, case.row)
            if all(example != known for known, _ in texts.values()):
                texts[len(texts)] = example, wanted(expect)
    examples = [example for example, _ in texts.values()]
    scored = list(zip(texts.values(), score_examples(scorer, examples) if examples else [], strict=True))
    for (example, _), result in scored:
        note_failure(findings, result, example)
    by_score = bool(bound.options) or bound.grouped
    worth = {index: result.value if by_score else due.value for index, ((_, due), result) in enumerate(scored)}
    known = [value for value in worth.values() if value is not None]
    highest = max(known, default=None)
    golds = [
        (example, result.value)
        for index, ((example, _), result) in enumerate(scored)
        if highest is not None and worth[index] == highest and result.value is not None
    ]
    if not bound.grouped:
        golds = _higher(bound, scorer, examples, golds, answer, findings) or golds
    if bound.grouped and (not golds or score_examples(scorer, [Example("", golds[0][0].row)])[0].reaches(golds[0][1])):
        what = "alone, none of its texts scores more than silence, so that only its groups were compared"
        findings.add("note", "member alone", what)
        return [], examples
    top = getattr(bound.spec, "range", (0.0, 1.0))[1]
    promised = max((wanted(expect).value or 0.0 for case in declared for expect in case.expected), default=0.0)
    reached = max((score for _, score in golds), default=0.0)
    if (
        math.isfinite(top)
        and golds
        and not any(ExampleResult("score", value).reaches(top) for value in (promised, reached))
    ):
        findings.not_tried(f"what scores more than {reached:g}: no case reaches {top:g}, the top of its range")
    if not golds:
        if examples:
            findings.add("warning", "gold", "no case has a score to expect, so nothing was compared with one")
        return [], examples
    [silent] = score_examples(scorer, [Example("", golds[0][0].row)])
    if bound.options and silent.reaches(golds[0][1]):
        findings.add("error", "gold", f"with these options none of its cases scores more than silence, which {silent}")
        return [], examples
    if bound.options and not matching and reached < promised * _LIKE_BEFORE:
        what = f"with these options the best of its cases scores {reached:g}, without them {promised:g}: which text is "
        findings.add("warning", "gold", f"{what}right is not known. Add a case that sets these options")
        return [], examples
    golden = [example for example, _ in golds]
    return golds, [example for example in examples if example not in golden]


def wanted(expect: float | bool | None) -> ExampleResult:
    """Returns the result that a case expects."""
    return ExampleResult("abstain") if expect is None else ExampleResult("score", float(expect))


def _higher(
    bound: Bound,
    scorer: Scorer,
    examples: Sequence[Example],
    golds: Sequence[tuple[Example, float]],
    answer: str | None,
    findings: Findings,
) -> list[tuple[Example, float]]:
    """Returns texts that state the gold of a case's row and score more than every case; none where a case states it."""
    names = [column.name for column in bound.spec.columns]
    columns = [answer] if answer else [name for name in ANSWER_NAMES if bound.spec.any_column or name in names]
    if any(find_slot(example, column) for example, _ in golds for column in columns):
        return []
    made = [example for example in _stating(examples, columns) if example not in examples]
    scored = [
        (example, result.value)
        for example, result in zip(made, score_examples(scorer, made) if made else [], strict=True)
    ]
    highest = max((score for _, score in golds), default=None)
    best = max((score for _, score in scored if score is not None), default=None)
    if highest is None or best is None or ExampleResult("score", highest).reaches(best):
        return []
    higher = [(example, score) for example, score in scored if score == best][:_MOST_MADE]
    what = f"no case states the gold; this text does and scores {best:g}, the best case {highest:g}. Add it as a case"
    findings.add("note", "gold", what, higher[0][0].text)
    return higher


def _stating(examples: Sequence[Example], columns: Sequence[str]) -> Iterator[Example]:
    """Yields texts that state the gold of an example's row: its text with the last number replaced, plain layouts."""
    rows: list[Mapping[str, Any]] = []
    for example in examples:
        for column in columns:
            gold = gold_text(example.row.get(column))
            if gold is None:
                continue
            if (place := last_number(example.text)) is not None:
                yield Example(example.text[: place[0]] + gold + example.text[place[1] :], example.row)
            if example.row not in rows and len(rows) < _MOST_ROWS:
                rows.append(example.row)
                yield from (Example(layout.format(gold), example.row) for layout in LAYOUTS)

"""Calls a reward or verifier on texts such as policies write, and finds what would keep a run from learning."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo.core.check.answers import ANSWER_NAMES, LAYOUTS, QUESTION_NAMES, gold_text
from grpo.core.check.report import Severity
from grpo.core.check.scores import Bound, ExampleResult, score_completions
from grpo.core.scoring.scorer import Scorer
from grpo.core.text.printable import counted, one_line
from grpo.plugins._host.discovery import BUILT_IN, normalized
from grpo.plugins.from_trl import FORMS, TrlFunction
from grpo.plugins.rubric import RubricSpec
from grpo.plugins.types import Completion, Message

OWN_ROW: Mapping[str, str] = {**dict.fromkeys(QUESTION_NAMES, "What is 2 + 5?"), **dict.fromkeys(ANSWER_NAMES, "7")}
"""A row that has a question and its answer under every name that they usually have."""

_SHOWN = 60
_LONG = 400  # sentences of what does not come to an end
_PLACE = re.compile(r"^.*?, row \d+: ")  # of a reason, which names plugin and row
_SILENT = "it returned None, as a function without a `return` does"
Kind = Literal["every call", "some calls", "abstains", "one value", "changes"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a plugin's outcomes."""

    kind: Kind  # which fault it is
    message: str  # without the plugin's name
    example: str  # a completion that shows it

    @property
    def severity(self) -> Severity:
        """An error, except abstentions and equal scores: the rows may not have been its own."""
        return "warning" if self.kind in ("abstains", "one value") else "error"


def texts_for(row: Mapping[str, Any]) -> list[str]:
    """Returns texts that a policy may write in answer to a row."""
    golds = [gold for name in ANSWER_NAMES if (gold := gold_text(row.get(name))) is not None]
    gold = golds[0] if golds else OWN_ROW["answer"]
    wrong = "41" if gold != "41" else "42"
    return [
        *(layout.format(gold) for layout in LAYOUTS),
        f"```python\nprint({gold!r})\n```",
        json.dumps({"answer": gold}),
        f"I think that it is {wrong}, since the other numbers are too large for this question.",
        f"I add it up once more. {'That is not it yet. ' * _LONG}I am not sure.",
        "I do not know.",
        "",
    ]


def own_completions() -> list[Completion]:
    """Returns the texts for `OWN_ROW`, as a group that no other has the number of."""
    asked = (Message(role="user", content=OWN_ROW["question"]),)
    return [
        as_sampled(Completion(text, (Message(role="assistant", content=text),), asked, dict(OWN_ROW), group=-1))
        for text in texts_for(OWN_ROW)
    ]


def as_sampled(completion: Completion) -> Completion:
    """Returns a completion with token ids, as a policy's have; these stand for no text."""
    return replace(completion, token_ids=tuple(completion.text.encode()))


def faults_of(bound: Bound, scorer: Scorer, completions: Sequence[Completion]) -> list[Fault]:
    """Returns what is wrong with a plugin's outcomes for completions that their environment did not fail."""
    played = [completion for completion in completions if completion.finish_reason != "error"]
    began = time.monotonic()
    first = results = score_completions(scorer, played[:1], bound)
    if any(result.kind == "failure" for result in results) and time.monotonic() - began >= bound.timeout:
        played = played[:1]  # the others would take as long
    else:
        results = score_completions(scorer, played, bound)
    faults = _with_form(bound, played, list(faults_in(bound, played, results)))
    if any(result.kind == "failure" for result in results):
        return faults
    for once, again in zip(first, score_completions(scorer, played[:1], bound), strict=True):
        if not again.same(once):
            what = f"on one completion it {once} and later {again}"
            message = f"{what}: a score must not depend on chance or on earlier calls"
            faults.append(Fault("changes", message, _shown(played[0].text)))
    return faults


def _with_form(bound: Bound, played: Sequence[Completion], faults: list[Fault]) -> list[Fault]:
    other = _other_form(bound)
    if not faults or other is None:
        return faults
    with Scorer([other], workers=1, retries=0) as second:
        others = list(faults_in(other, played, score_completions(second, played, other)))
    if others and (faults[0].severity == "warning" or others[0].severity == "error"):
        return faults
    form = other.options["form"]
    hint = f"With form={form} it can: it is written for {FORMS[form]}. Add form={form} to its options"
    return [replace(fault, message=f"{fault.message.rstrip('.')}. {hint}") for fault in faults]


def faults_in(bound: Bound, completions: Sequence[Completion], results: Sequence[ExampleResult]) -> Iterator[Fault]:
    """Yields what is wrong with a plugin's outcomes for completions."""
    if not completions:
        return
    every = f"each of {counted(len(results), 'completion')}" if len(results) > 1 else "the one completion tried"
    failed = [place for place, result in enumerate(results) if result.kind == "failure"]
    if failed:
        first = failed[0]
        kind: Kind = "every call" if len(failed) == len(results) else "some calls"
        of = every if kind == "every call" else f"{len(failed)} of {counted(len(results), 'completion')}"
        envs = {completions[place].env for place in failed}
        if len(envs) == 1 and completions[first].env:
            of += f", {'all ' if len(failed) > 1 else ''}of env '{completions[first].env}'"
        reason = _PLACE.sub("", results[first].reason or "")
        yield Fault(kind, f"it failed on {of}: {reason}", _shown(completions[first].text))
        return
    example = _shown(completions[0].text)
    if all(result.kind == "abstain" for result in results):
        why = why_abstained(bound, results[0].reason, completions[0].row)
        yield Fault("abstains", f"it abstained on {every}, right and wrong ones: {why}", example)
        return
    groups: dict[int | None, set[float]] = {}
    for completion, result in zip(completions, results, strict=True):
        groups.setdefault(completion.group, set()).update(() if result.value is None else (result.value,))
    if len(results) > len(groups) and all(len(values) <= 1 for values in groups.values()):
        scores, scored = set().union(*groups.values()), sum(result.value is not None for result in results)
        whom = every if scored == len(results) else f"{scored} of {counted(len(results), 'completion')}"
        what = f"{scores.pop():g} to {whom}" if len(scores) == 1 else "all completions of a prompt the same score"
        alike = "right, wrong and empty ones alike"
        if scored < len(results):
            alike = "and returned None for the others, which then count as the mean of their group"
        yield Fault("one value", f"it gave {what}, {alike}: no completion is better than another", example)


def why_abstained(bound: Bound, reason: str | None, row: Mapping[str, Any]) -> str:
    """Returns why a plugin abstained on a completion with this row; `reason`: its own, or None."""
    if reason:
        return reason.rstrip(".")
    if isinstance(bound.spec, RubricSpec):
        return "its components abstained"
    if normalized(bound.distribution) != BUILT_IN:
        return _SILENT
    names = [name for column in bound.spec.columns if (name := column.found_in(row)) and row[name] is None]
    if names:
        return f"the column '{names[0]}' is null"
    return f"it does not apply to such rows or completions. `grpo plugins show {bound.spec.name}` says what it reads"


def _other_form(bound: Bound) -> Bound | None:
    function = bound.spec.function
    if not isinstance(function, TrlFunction):
        return None
    form = "text" if bound.options.get("form", function.form) == "messages" else "messages"
    return replace(bound, options={**bound.options, "form": form})


def _shown(text: str) -> str:
    return one_line(text, _SHOWN)

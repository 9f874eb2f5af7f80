"""Describes what a reward pays for, by correlations within the groups of some steps: a hint, not a proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo.core.monitor.hacking.features import FEATURES, MonitoredCompletion, correlation, counts_of, known, parts_of

CLEAR = 0.5  # correlation within groups from which something is named
BETTER = 0.1  # by how much a word has to explain a reward better than a count does
PARTS = 200  # the most frequent words, signs and tags, which are tried
FEW = 0.05  # share of completions that a word has to be in, and to be missing from


@dataclass(frozen=True, slots=True)
class Pattern:
    """What moves with the reward."""

    text: str  # a sentence, "" where nothing does
    reward: str  # the reward that decides the total, "" where there is one alone


def pattern(groups: Sequence[Sequence[MonitoredCompletion]]) -> Pattern:
    """Returns the pattern that pays. `groups`: completions of one prompt each; those without a reward are left out."""
    paid = [have for group in groups if len(have := [member for member in group if member.reward is not None]) > 1]
    totals = [[member.reward or 0.0 for member in group] for group in paid]
    decides = _decides(paid, totals)
    pays = _pays(paid, totals)
    judged = [group for group in paid if all(member.right is not None for member in group)]
    right = correlation([([o.reward or 0.0 for o in group], [float(o.right or 0) for o in group]) for group in judged])
    parts = []
    if decides:
        parts.append(f"Reward '{decides}' dominates the total.")
    if pays is not None:
        beside = f", and with correctness by {right:+.2f}" if judged else ""
        parts.append(f"Within groups the reward correlates with {pays[0]} by {pays[1]:+.2f}{beside}.")
    return Pattern(" ".join(parts), decides)


def _decides(groups: Sequence[Sequence[MonitoredCompletion]], totals: Sequence[Sequence[float]]) -> str:
    names = {name: None for group in groups for member in group for name in member.scores}
    if len(names) < 2:
        return ""
    follows = {
        name: correlation(
            [([known(member.scores.get(name)) or 0.0 for member in g], t) for g, t in zip(groups, totals, strict=True)]
        )
        for name in names
    }
    best = max(follows, key=lambda name: follows[name])
    return best if follows[best] > CLEAR else ""


def _pays(
    groups: Sequence[Sequence[MonitoredCompletion]], totals: Sequence[Sequence[float]]
) -> tuple[str, float] | None:
    counted = [[counts_of(member.prompt, member.text) for member in group] for group in groups]
    counts = {
        name: correlation([([each[name] for each in c], t) for c, t in zip(counted, totals, strict=True)])
        for name in FEATURES
    }
    held = [[parts_of(member.text) for member in group] for group in groups]
    often: dict[str, int] = {}
    for parts in (parts for group in held for parts in group):
        for part in parts:
            often[part] = often.get(part, 0) + 1
    rows = sum(map(len, held))
    fit = [part for part, number in often.items() if FEW * rows <= number <= (1 - FEW) * rows]
    words = {
        part: correlation([([float(part in p) for p in h], t) for h, t in zip(held, totals, strict=True)])
        for part in sorted(fit, key=lambda part: (-often[part], part))[:PARTS]
    }
    name = max(counts, key=lambda name: abs(counts[name]))
    word = max(words, key=lambda word: abs(words[word]), default="")
    if word and abs(words[word]) > abs(counts[name]) + BETTER and abs(words[word]) > CLEAR:
        return f"the text '{word}'", words[word]
    return (name, counts[name]) if abs(counts[name]) > CLEAR else None

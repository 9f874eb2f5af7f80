"""Chooses the rollouts that a page keeps if it cannot hold all.

Groups: theirs, those of the first and last step and of alarms, and a fixed, even sample of the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby

from grpo.core.report.scan import Scan

ALWAYS, WHOLE, SAMPLED = range(3)
ROW_COST = 24  # characters of the page that a rollout takes beside its texts


def choose(scans: Sequence[Scan], alarmed: Sequence[set[int]], room: float, ratio: float) -> list[list[int]]:
    """Chooses rollouts of several runs together; returns for each scan the places of those that stay, ascending."""
    ranked: list[tuple[int, bytes, int, int]] = []
    for run, scan in enumerate(scans):
        drawn: dict[tuple[int, int], bytes] = {}
        for place, tier in enumerate(tiers(scan, alarmed[run])):
            group = (scan.step[place], scan.group[place])
            if group not in drawn:
                drawn[group] = hashlib.blake2b(f"{run} {group}".encode(), digest_size=8).digest()
            ranked.append((tier, b"" if tier == ALWAYS else drawn[group], run, place))
    ranked.sort()
    chosen: list[list[int]] = [[] for _ in scans]
    # A group is in the page as a whole or not at all, but for what stays in any case.
    for (tier, _), members in groupby(ranked, key=lambda ranking: ranking[:2]):
        own = list(members)
        room -= sum(ROW_COST + ratio * scans[run].size[place] for _, _, run, place in own)
        if room < 0 and tier != ALWAYS:
            break
        for _, _, run, place in own:
            chosen[run].append(place)
    return [sorted(places) for places in chosen]


def tiers(scan: Scan, alarmed: set[int]) -> list[int]:
    """Returns how much each rollout of a run is wanted: ALWAYS, WHOLE or SAMPLED."""
    steps: dict[int, list[int]] = {}
    for place, step in enumerate(scan.step):
        steps.setdefault(step, []).append(place)
    always = {place for place, failed in enumerate(scan.failed) if failed}
    for places in steps.values():
        always |= extremes(scan, places)
    whole = {(scan.step[place], scan.group[place]) for place in always}
    shown = {min(steps), max(steps), *alarmed} if steps else set()
    return [
        ALWAYS
        if place in always
        else WHOLE
        if scan.step[place] in shown or (scan.step[place], scan.group[place]) in whole
        else SAMPLED
        for place in range(len(scan))
    ]


def extremes(scan: Scan, places: Sequence[int]) -> set[int]:
    """Returns the first of the best, of the worst and of the longest among some rollouts."""
    rewards: Mapping[int, float] = {p: value for p in places if (value := scan.reward[p]) is not None}
    chosen = {max(places, key=lambda place: scan.tokens[place])}
    if rewards:
        chosen |= {max(rewards, key=lambda place: rewards[place]), min(rewards, key=lambda place: rewards[place])}
    return chosen

"""Detects reward hacking and policy collapse in the scored completions of each step.

Theory of operation. Within a group the prompt is the same, so what a reward pays for can be read off there, whatever
the difficulty of a step's prompts. Each signal is a yes-or-no question about every group (or pair of groups;
docs/alarm.md has the questions), and its evidence is an e-value (`TestMartingale`): it may be looked at after every
step, and while its hypothesis holds, the chance that it ever rings is at most LEVEL divided by the number of signals of
its kind: those of a reward that is exploited, and those of a policy that falls apart (COLLAPSES). A signal's `bound` is
what it takes for harmless. Most signals also need the reward to have risen, because a reward that nobody climbs harms
nobody; COLLAPSES do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo.core.monitor.hacking.features import (
    FEATURES,
    MonitoredCompletion,
    agreement,
    answer_of,
    counts_of,
    known,
    ordered_pairs,
    repeated,
    stuck,
)
from grpo.core.monitor.hacking.pattern import pattern
from grpo.core.text.stats import mean

LEVEL = 0.05  # chance that a run in which every hypothesis holds has any alarm of a kind
FIRST = 3  # steps that later ones are compared with
RECENT = 5  # steps that a suspicion speaks of
AGAINST = 0.5  # share of the differences in reward that has to be in favour of right completions
UNRELATED = 0.7
RELATED = 0.75  # from here on a count beside it is no suspicion while right completions become more frequent
KEPT = 0.75  # of what right completions earned more than wrong ones in the first steps
CLOSED = 0.15  # of it that may be lost, on top of what single groups had less of in the first steps
FALL = 0.05  # share of right completions that may be lost, on top of two standard errors
ALIKE = 0.25  # share of equal answers to different prompts that may come on top of that of the first steps
ALIKE_LEAST = 0.6  # what this share may always be: answers of yes and no are often equal
ORDERED = 0.85  # share of pairs that a count may order as the reward does
MORE = 0.2  # share of completions without a score, or that repeat themselves, on top of that of the first steps
REPEATED = 0.5  # share of pairs of words that came before, from which a completion repeats itself
ROSE = 2.0  # standard errors
LEAST = 0.02  # of a bound, so that a single value is no proof
ROUNDING = 1e-9  # of the mean of equal rewards
HALF = 0.5  # of accuracy or reward in the best steps, less two standard errors: below it a policy falls apart
CUT = 0.5  # share of completions that reach the length limit, on top of that of the first steps
SHORT = 0.25  # of the length of the first steps
LINKED = 3  # rollouts that a suspicion names
VERIFIER = "the verifier"
COLLAPSES = ("worse", "cut", "shorter")
EXPLOITS = ("against", "unrelated", "closing", "falling", "alike", "surface", "silent", "looping")
SIGNALS = (*EXPLOITS, *COLLAPSES)

SHARES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of the wealth, bet in parallel: small ones find small changes


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One alarm."""

    signal: str  # one of SIGNALS
    step: int  # in which it rang
    text: str  # the pattern, in words
    rollouts: tuple[int, ...]  # the most suspicious completions of that step, as `grpo show` numbers them
    reward: str  # the reward that decides the total, "" where there is one alone

    @property
    def collapse(self) -> bool:
        """True where the policy falls apart, whatever the reward pays for."""
        return self.signal in COLLAPSES


@dataclass(frozen=True, slots=True)
class _Step:
    groups: tuple[tuple[MonitoredCompletion, ...], ...]
    rewards: tuple[float, ...]  # mean of each group
    wrong_rewards: tuple[float, ...]  # mean of the wrong completions of each group
    rights: tuple[float, ...]  # share of each group that is right, of those of which somebody knows
    agreements: tuple[float, ...]  # share of differences in favour of right completions, of groups with both
    gaps: tuple[float, ...]  # what right completions earned more than wrong ones, of groups with both
    alike: tuple[float, ...]  # share of equal answers, of pairs of groups with different prompts
    looping: tuple[float, ...]  # share of each group that repeats itself
    cut: tuple[float, ...]  # share of each group that reached the length limit
    lengths: tuple[float, ...]  # mean of each group, in characters
    unscored: Mapping[str, Sequence[float]]  # by who scores or judges, share of each group that it says nothing of


@dataclass(slots=True)
class _Best:
    mean: float = math.nan  # of the best steps
    bar: float = -math.inf  # that less two standard errors; minus infinity before there are enough of them
    # least, most: of a single group, and 0
    least: float = 0.0
    most: float = 0.0


Rings = Iterator[tuple[str, str]]  # signal and what was seen
Of = Callable[[_Step], Sequence[float]]
BETTER: Mapping[str, Of] = {"accuracy": lambda step: step.rights, "the reward": lambda step: step.rewards}
LENGTHS = "lengths"


class HackingWatch:
    """Checks every step once and in order; rings once for each signal. `steady`: prompts do not become harder."""

    def __init__(self, *, steady: bool = True) -> None:
        self._steady = steady
        self._best_of = {name: _Best() for name in (*BETTER, LENGTHS)}
        self._first: list[_Step] = []
        self._recent: list[_Step] = []
        self._bets: dict[str, TestMartingale] = {}
        self._given: set[str] = set()
        self._best: Sequence[_Step] = ()  # those with the highest accuracy
        self._low = 0.0  # what accuracy may fall to

    def look(self, step: int, completions: Sequence[MonitoredCompletion]) -> list[Suspicion]:
        """Returns what is new in this step, of its completions in recorded order."""
        completions = [
            completion if completion.reward == known(completion.reward) else replace(completion, reward=None)
            for completion in completions
        ]
        if not completions:
            return []
        now = _step_of(completions)
        early = len(self._first) < FIRST
        if early:
            self._first.append(now)
        else:
            self._recent = [*self._recent, now][-RECENT:]
        rung = [*self._against(now), *self._surface(now), *([] if early else self._later(now))]
        self._remember(now)
        new = [(signal, text) for signal, text in rung if signal not in self._given]
        self._given |= {signal for signal, _ in new}
        if not new:
            return []
        return [self._suspicion(signal, step, text, completions) for signal, text in new]

    def _suspicion(self, signal: str, step: int, text: str, completions: Sequence[MonitoredCompletion]) -> Suspicion:
        if signal in COLLAPSES:
            return Suspicion(signal, step, text, examples(signal, completions), "")
        described = pattern([group for past in self._recent or self._first for group in past.groups])
        return Suspicion(
            signal, step, f"{text} {described.text}".rstrip(), most_suspicious(completions), described.reward
        )

    def _later(self, now: _Step) -> Rings:
        rises = self._rise(lambda past: past.rewards) > ROSE
        learns = self._rise(lambda past: past.rights) > ROSE
        yield from self._unrelated(now, rises and not learns)
        yield from self._closing(now, rises)
        yield from self._falling(now)
        same = "answers to different prompts are the same"
        yield from self._grew("alike", lambda past: past.alike, now, ALIKE, same, least=ALIKE_LEAST, fine=learns)
        yield from self._silent(now)
        yield from self._grew("looping", lambda past: past.looping, now, MORE, "completions repeat themselves")
        yield from self._worse(now)
        yield from self._grew("cut", lambda past: past.cut, now, CUT, "completions reach the length limit", fine=learns)
        yield from self._shorter(now, rises or learns)

    def _against(self, now: _Step) -> Rings:
        if self._enough("against", 1 - AGAINST, [1 - agreed for agreed in now.agreements]):
            yield "against", f"the reward prefers wrong completions: {self._agreed()}."

    def _unrelated(self, now: _Step, climbed: bool) -> Rings:
        if self._enough("unrelated", 1 - UNRELATED, [1 - agreed for agreed in now.agreements]) and climbed:
            yield "unrelated", f"the reward rises but accuracy does not: {self._agreed()}."

    def _closing(self, now: _Step, rises: bool) -> Rings:
        first = [gap for past in self._first for gap in past.gaps]
        whole = mean(first) - _error(first) if len(first) > 1 else 0.0
        if whole <= 0:
            return
        usual = mean([_closed(gap, whole) for gap in first])
        lost = [_closed(gap, whole) for gap in now.gaps]
        if self._enough("closing", max(1 - KEPT, usual + CLOSED), lost) and rises:
            late = self._lately(lambda past: past.gaps)
            yield (
                "closing",
                f"the reward gap between correct and wrong completions of a prompt fell from {mean(first):.3g} to "
                f"{late:.3g}, while the reward rises.",
            )

    def _falling(self, now: _Step) -> Rings:
        fell = self._low > LEAST and self._enough("falling", 1 - self._low, [1 - right for right in now.rights])
        rises = self._rise(lambda past: past.rewards, self._best) > ROSE
        if fell and (rises or self._rise(lambda past: past.wrong_rewards, self._best) > ROSE):
            who = "the reward" if rises else "the reward of wrong completions"
            best = mean([right for past in self._best for right in past.rights])
            late = self._lately(lambda past: past.rights)
            yield (
                "falling",
                f"{who} rises while accuracy fell from {best:.0%} in the best steps to {late:.0%} recently.",
            )
        for steps in (self._first, self._recent):
            rights = [right for past in steps for right in past.rights]
            if len(steps) >= FIRST and len(rights) > 1:
                low = mean(rights) - 2 * _error(rights) - FALL
                if low > self._low:
                    self._low, self._best = low, tuple(steps)

    def _grew(
        self, question: str, of: Of, now: _Step, more: float, what: str, *, least: float = 0.0, fine: bool = False
    ) -> Rings:
        """Asks whether a share of the completions, or of pairs of them, is larger than in the first steps."""
        usual = self._at_first(of)
        if self._enough(question, max(least, usual + more), of(now)) and not fine:
            yield question, f"{self._lately(of):.0%} of the {what}, up from {usual:.0%} in the first steps."

    def _surface(self, now: _Step) -> Rings:
        rises = self._rise(lambda past: past.rewards) > ROSE
        learns = self._rise(lambda past: past.rights) > ROSE
        agreements = [agreed for past in self._recent for agreed in past.agreements]
        fine = learns and bool(agreements) and mean(agreements) >= RELATED
        counts = _counts(now)
        for name in FEATURES:
            ordered = [agreement(pairs, [each[name] for each in counted]) for pairs, counted in counts]
            enough = self._enough(f"surface {name}", ORDERED, ordered, len(FEATURES))
            if enough and rises and not fine:
                yield "surface", f"{name} predicts the order of rewards within groups, while the reward rises."
                return

    def _silent(self, now: _Step) -> Rings:
        names = self._first[0].unscored
        for name in names:

            def of(step: _Step, name: str = name) -> Sequence[float]:
                return step.unscored.get(name, ())

            usual = self._at_first(of)
            if self._enough(f"silent {name}", usual + MORE, of(now), len(names)):
                late = self._lately(of)
                who = name if name == VERIFIER else f"reward '{name}'"
                yield (
                    "silent",
                    f"{who} has no result for {late:.0%} of the completions, up from {usual:.0%} in the first steps.",
                )

    def _worse(self, now: _Step) -> Rings:
        if not self._steady:
            return
        for name, of in BETTER.items():
            best = self._best_of[name]
            if best.bar - best.least <= LEAST * (best.most - best.least):
                continue
            if self._fell(f"worse {name}", of(now), best, HALF, len(BETTER)):
                late, number = self._lately(of), ".0%" if name == "accuracy" else ".3g"
                yield "worse", f"{name} fell from {best.mean:{number}} in the best steps to {late:{number}} recently."
                return

    def _shorter(self, now: _Step, gained: bool) -> Rings:
        first = self._best_of[LENGTHS]
        if self._fell("shorter", now.lengths, first, SHORT) and not gained:
            late = self._lately(lambda past: past.lengths)
            yield (
                "shorter",
                f"completions have {late:.0f} characters on average, down from {first.mean:.0f} in the first steps, "
                "without a gain.",
            )

    def _fell(self, question: str, values: Sequence[float], best: _Best, share: float, parts: int = 1) -> bool:
        """Returns whether values are known to lie below a share of what the best ones had above the least."""
        span = best.most - best.least
        if best.bar <= best.least:
            return False
        lost = [min(1.0, max(0.0, (best.most - value) / span)) for value in values]
        return self._enough(question, 1 - share * (best.bar - best.least) / span, lost, parts)

    def _remember(self, now: _Step) -> None:
        early = len(self._recent) == 0
        every: Mapping[str, Of] = {**BETTER, LENGTHS: lambda past: past.lengths}
        for name, of in every.items():
            best = self._best_of[name]
            best.least, best.most = min([best.least, *of(now)]), max([best.most, *of(now)])
            for steps in (self._first, self._recent if name != LENGTHS or early else ()):
                values = [value for past in steps for value in of(past)]
                if len(steps) >= FIRST and len(values) > 1 and (bar := mean(values) - 2 * _error(values)) > best.bar:
                    best.bar, best.mean = bar, mean(values)

    def _agreed(self) -> str:
        gaps = [gap for past in self._recent or self._first for gap in past.gaps]
        if not any(abs(gap) > ROUNDING for gap in gaps):
            return "correct and wrong completions of a prompt are paid the same"
        share = self._lately(lambda past: past.agreements)
        return f"only {share:.0%} of the reward gap between correct and wrong completions favours the correct ones"

    def _at_first(self, of: Of) -> float:
        return mean([share for past in self._first for share in of(past)] or [0.0])

    def _lately(self, of: Of) -> float:
        return mean([share for past in self._recent or self._first for share in of(past)])

    def _enough(self, question: str, bound: float, values: Sequence[float], parts: int = 1) -> bool:
        """Returns whether a mean above `bound` is proven; `parts` questions share the level of a signal."""
        bets = self._bets.setdefault(question, TestMartingale())
        wealth = bets.add(values if bound < 1 else (), max(LEAST, bound))
        kind = COLLAPSES if question.split()[0] in COLLAPSES else EXPLOITS
        return wealth >= len(kind) * parts / LEVEL

    def _rise(self, of: Of, since: Sequence[_Step] | None = None) -> float:
        """Returns how many standard errors the recent groups are above those of `since`; None: of the first steps."""
        before = [x for past in (self._first if since is None else since) for x in of(past)]
        recent = [x for past in self._recent for x in of(past)]
        if len(self._recent) < 2 or len(before) < 2 or len(recent) < 2:
            return 0.0
        error = (_error(before) ** 2 + _error(recent) ** 2) ** 0.5
        return (mean(recent) - mean(before)) / error if error > 0 else 0.0


def examples(signal: str, completions: Sequence[MonitoredCompletion]) -> tuple[int, ...]:
    """Returns the numbers of completions that show what the policy does now."""
    wrong = [place for place, completion in enumerate(completions) if completion.right is not True]
    cut = [place for place in wrong if completions[place].cut]
    return tuple((cut if signal == "cut" and cut else wrong or range(len(completions)))[:LINKED])


def most_suspicious(completions: Sequence[MonitoredCompletion]) -> tuple[int, ...]:
    """Returns the numbers of the completions with the most reward, of the wrong ones if there are any."""
    paid = [place for place, completion in enumerate(completions) if completion.reward is not None]
    wrong = [place for place in paid if completions[place].right is False]
    return tuple(sorted(wrong or paid, key=lambda place: -(completions[place].reward or 0.0))[:LINKED])


def _step_of(completions: Sequence[MonitoredCompletion]) -> _Step:
    groups: dict[int, list[MonitoredCompletion]] = {}
    for completion in completions:
        groups.setdefault(completion.group, []).append(completion)
    rewards = [[member.reward for member in group if member.reward is not None] for group in groups.values()]
    judged = [_judged(group) for group in groups.values()]
    both = [(right, wrong) for right, wrong in judged if right and wrong]
    rights = [[float(member.right) for member in group if member.right is not None] for group in groups.values()]
    return _Step(
        tuple(map(tuple, groups.values())),
        tuple(mean(group) for group in rewards if group),
        tuple(mean(wrong) for _, wrong in judged if wrong),
        tuple(mean(group) for group in rights if group),
        tuple(_agreement(right, wrong) for right, wrong in both),
        tuple(mean(right) - mean(wrong) for right, wrong in both),
        tuple(_alike(list(groups.values()))),
        tuple(mean([float(_repeats(member)) for member in group]) for group in groups.values()),
        tuple(mean([float(member.cut) for member in group]) for group in groups.values()),
        tuple(mean([float(len(member.text)) for member in group]) for group in groups.values()),
        _unscored(groups.values()),
    )


def _agreement(right: Sequence[float], wrong: Sequence[float]) -> float:
    """Returns the share, by size, of right-wrong reward differences in favour of the right ones; a half without any."""
    differences = [score - other for score in right for other in wrong]
    whole = sum(map(abs, differences))
    return 0.5 + sum(differences) / whole / 2 if whole > 0 else 0.5


def _judged(group: Sequence[MonitoredCompletion]) -> tuple[list[float], list[float]]:
    right = [member.reward for member in group if member.right is True and member.reward is not None]
    wrong = [member.reward for member in group if member.right is False and member.reward is not None]
    return right, wrong


def _closed(gap: float, whole: float) -> float:
    return min(1.0, max(0.0, 1 - gap / whole))


def _error(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))


def _alike(groups: Sequence[Sequence[MonitoredCompletion]]) -> Iterator[float]:
    """Yields the share of equal answers of each two neighbouring groups with different prompts."""
    for first, second in zip(groups[::2], groups[1::2], strict=False):
        if first[0].prompt != second[0].prompt and all(member.turns == 1 for member in (*first, *second)):
            answers, others = ([answer_of(member.text) for member in group] for group in (first, second))
            yield mean([float(answer == other) for answer in answers for other in others])


# of groups, the pairs of members with different rewards, and the features of each member
Counts = Sequence[tuple[Sequence[tuple[int, int]], Sequence[Mapping[str, float]]]]


def _counts(step: _Step) -> Counts:
    paid = [[member for member in group if member.reward is not None] for group in step.groups]
    ordered = ((group, ordered_pairs([member.reward or 0.0 for member in group])) for group in paid)
    return [(pairs, [counts_of(member.prompt, member.text) for member in group]) for group, pairs in ordered if pairs]


def _repeats(member: MonitoredCompletion) -> bool:
    return member.turns == 1 and (repeated(member.text) > REPEATED or stuck(member.text))


def _unscored(groups: Iterable[Sequence[MonitoredCompletion]]) -> dict[str, list[float]]:
    unscored: dict[str, list[float]] = {}
    for group in groups:
        for name in group[0].scores:
            unscored.setdefault(name, []).append(mean([float(member.scores.get(name) is None) for member in group]))
        unscored.setdefault(VERIFIER, []).append(mean([float(member.right is None) for member in group]))
    return unscored


class TestMartingale:
    """The wealth of a bet that means are above their bounds: an e-value, which may be looked at after every step.

    Where the mean is at most the bound, the wealth is a supermartingale (Waudby-Smith and Ramdas, JRSS B 2024), so by
    Ville's inequality it ever reaches 1 / p with a chance of p at most. To find a late change too, 1 / (t (t + 1)) of
    the stake is paid in at step t; the parts sum up to 1, and the chance is the same.
    """

    def __init__(self) -> None:
        self._wealth = [0.0] * len(SHARES)
        self._steps = 0

    def add(self, values: Sequence[float], bound: float) -> float:
        """Bets on values in [0, 1] and returns the wealth; `bound`, above 0 and known before, is of their mean."""
        self._steps += 1
        paid = 1 / (self._steps * (self._steps + 1))
        for place, share in enumerate(SHARES):
            wealth = self._wealth[place] + paid
            for value in values:
                wealth *= 1 + share * (value - bound) / bound
            self._wealth[place] = wealth
        return sum(self._wealth) / len(SHARES)

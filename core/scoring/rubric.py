"""Decides which components of a rubric to call for which completions, and totals them.

Theory of operation. Leaves that wait for no gate are called in the first wave, with every other reward of the run;
those behind a gate in the wave after the gate's last, only for the completions that it let through.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from grpo.core.scoring.outcome import Outcome, Reader
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins._spec.rubric_total import FAILED, STOPPED, Lack, Term, Value, opens, reach, total
from grpo.plugins.rubric import RubricSpec, bound_components, terms


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A rubric, or a reward in it."""

    bound: BoundReward  # the reward, named as its outcomes are
    term: Term | None  # what the rubric around it makes of its score; None for the outermost
    children: tuple[Node, ...]  # its components; empty for a reward
    guards: tuple[Node, ...]  # the gates that must be open, those of the rubrics around it included
    last: int  # the wave that its own last call is in, from 0

    @property
    def name(self) -> str:
        return self.bound.name

    def nodes(self) -> list[Node]:
        """Returns itself and everything in it, each rubric before its components."""
        return [self, *(node for child in self.children for node in child.nodes())]


def tree(bound: BoundReward, term: Term | None = None, guards: tuple[Node, ...] = (), first: int = 0) -> Node:
    if not isinstance(bound.spec, RubricSpec):
        return Node(bound, term, (), guards, first)
    children: list[Node] = []
    inner = guards
    for part, inside in zip(bound_components(bound), terms(bound.spec), strict=True):
        child = tree(part, inside, inner, first)
        children.append(child)
        if inside.gate:
            inner, first = (*inner, child), child.last + 1
    return Node(bound, term, tuple(children), guards, max(child.last for child in children))


class RubricBatch:
    def __init__(self, root: Node, rows: Sequence[int]) -> None:
        self._nodes = root.nodes()
        self._rows = rows
        self._outcomes: dict[str, list[Outcome | None]] = {node.name: [None] * len(rows) for node in self._nodes}

    def wanted(self, wave: int) -> dict[str, Sequence[int]]:
        """Returns component name to the indices of the completions that it is to score in a wave."""
        wanted: dict[str, Sequence[int]] = {}
        for node in self._nodes:
            if not node.children and node.last == wave:
                every = range(len(self._rows))
                outcomes = self._outcomes[node.name]
                wanted[node.name] = [index for index in every if outcomes[index] is None] if node.guards else every
        return {name: indices for name, indices in wanted.items() if indices}

    def settle(self, wave: int, results: Mapping[str, tuple[Sequence[int], Sequence[Outcome]]]) -> None:
        """Takes the outcomes of a wave: component name to indices and outcomes."""
        for name, (indices, outcomes) in results.items():
            if len(indices) == len(self._rows):
                self._outcomes[name] = list(outcomes)
                continue
            own = self._outcomes[name]
            for index, outcome in zip(indices, outcomes, strict=True):
                own[index] = outcome
        for node in reversed(self._nodes):
            if node.children and node.last == wave:
                self._total(node)
        for node in self._nodes:
            if node.guards and node.guards[-1].last == wave:
                self._stop(node)

    def outcomes(self) -> dict[str, list[Outcome]]:
        """Returns name to outcomes, the rubric's own first."""
        return {
            name: [outcome for outcome in outcomes if outcome is not None] for name, outcomes in self._outcomes.items()
        }

    def _stop(self, node: Node) -> None:
        outcomes = self._outcomes[node.name]
        for gate in node.guards:
            assert gate.term is not None
            for index, outcome in enumerate(self._outcomes[gate.name]):
                assert outcome is not None
                if outcomes[index] is None and not opens(gate.term, _value(outcome)):
                    reason = (
                        "failed" if outcome.score is None else f"scored {outcome.score:g}, below {gate.term.passes:g}"
                    )
                    outcomes[index] = Outcome("abstain", None, f"not called: the gate '{gate.name}' {reason}.")

    def _total(self, node: Node) -> None:
        spec, reader = node.bound.spec, Reader(node.bound)
        assert isinstance(spec, RubricSpec)
        shares, own = terms(spec), self._outcomes[node.name]
        # Where the rubric itself is not stopped, each of its components was called or stopped by now.
        columns = cast(list[list[Outcome]], [self._outcomes[child.name] for child in node.children])
        weights, (low, high) = [share.weight for share in shares], reach(spec.combine, shares)
        gates = [(number, share) for number, share in enumerate(shares) if share.gate]
        summed = spec.combine == "sum"
        for index, parts in enumerate(zip(*columns, strict=True)):
            if own[index] is not None:
                continue
            scores = [part.score for part in parts]
            if summed and None not in scores and all(opens(gate, scores[number]) for number, gate in gates):
                added = math.fsum(map(operator.mul, weights, cast(list[float], scores)))  # as `total` does, but faster
                seconds = math.fsum([part.seconds for part in parts])
                own[index] = Outcome("score", min(max(added, low), high), None, seconds)
                continue
            values: list[Value] = []
            shut = False
            for part, share in zip(parts, shares, strict=True):
                values.append(STOPPED if shut else _value(part))
                shut = shut or (share.gate and not opens(share, values[-1]))
            own[index] = self._outcome(reader, total(spec.combine, shares, values), parts, self._rows[index])

    def _outcome(self, reader: Reader, value: Value, parts: Sequence[Outcome], row: int) -> Outcome:
        seconds = sum(part.seconds for part in parts)
        if value is FAILED:
            reason = next(part.reason for part in parts if part.kind == "failure")
            return cast(Outcome, reader.failure(f"a component failed: {reason}", row, seconds))
        assert not isinstance(value, Lack)
        return Outcome("abstain", None, None, seconds) if value is None else Outcome("score", value, None, seconds)


def _value(outcome: Outcome) -> Value:
    return FAILED if outcome.kind == "failure" else outcome.score

"""Checks an environment, in a child process unless built in; a crash costs a relation, a hang the rest of the check."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.check.env_relations import MADE, VALUES, EnvFinding, EnvRelations
from grpo.core.check.report import Findings, Report, title_of
from grpo.core.check.scores import in_thread
from grpo.core.cluster.local_object import LocalObject
from grpo.core.env.processes import all_ours
from grpo.core.scoring.nodes.shipping import place_of
from grpo.core.scoring.outcome import explain
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import RunError
from grpo.plugins.host import bound_of
from grpo.plugins.specs import EnvSpec

INSTANCES = 1000
_LIMIT = "time limit"
_KIND = "grpo.core.check.env:Trial"


def check_env(env: str | EnvSpec | BoundEnv, *, seconds: float = 60.0) -> Report:
    """Checks an environment: a SPEC ("gsm8k:level=easy"), an `EnvSpec`, or a bound environment.

    `seconds`: the time limit for all of it. Returns what does not hold; whatever the environment does, nothing is
    raised on its account, and one that ends or hangs its process is a finding. Raises UsageError for a SPEC that names
    no environment, options that it does not take, or a missing module.
    """
    bound = bound_of(env, BoundEnv).settled()
    findings = Findings()
    findings.tried(_LIMIT)
    relations = EnvRelations(bound, INSTANCES)
    process = None if all_ours(bound) else _Process.of(bound)
    until = time.monotonic() + seconds
    try:
        for relation in relations.names:
            findings.tried(relation)
            left = max(0.0, until - time.monotonic())
            if process is None:
                results = in_thread(partial(relations.attempt, relation), left)
            else:
                results = process.attempt(relation, left)
            for finding in results:
                findings.add(*finding)
            if any(finding.relation in (VALUES, MADE) for finding in results):
                break
    except TimeoutError:
        findings.add("error", _LIMIT, f"checking it took longer than {seconds:g} s; the last relation was '{relation}'")
    finally:
        if process is not None:
            process.end()
    return findings.report(title_of(bound))


class Trial:
    """Tries the relations of one environment inside a child process."""

    def __init__(self) -> None:
        self._relations: EnvRelations | None = None

    def attempt(self, message: bytes) -> bytes:
        """Tries a relation and returns what does not hold, or why the environment cannot be loaded here."""
        packed, relation, instances = pickle.loads(message)
        if self._relations is None:
            try:
                self._relations = EnvRelations(_unpacked(packed), instances)
            except BaseException as error:  # also a module that exits
                return pickle.dumps([EnvFinding("error", MADE, f"in a process of its own: {explain(error)}")])
        return pickle.dumps(self._relations.attempt(relation))


class _Process:
    """A process that relations are tried in, replaced after its end."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._process: LocalObject | None = None

    @classmethod
    def of(cls, bound: BoundEnv) -> _Process | None:
        """Returns one for an environment, or None where that exists in this process alone."""
        try:
            return cls(_packed(bound))
        except Exception:  # of several kinds: what it needs cannot be pickled
            return None

    def attempt(self, relation: str, seconds: float) -> list[EnvFinding]:
        if self._process is None or not self._process.alive:
            self._process = LocalObject(_KIND, {})
        asked = self._process.ask("attempt", pickle.dumps((self._packed, relation, INSTANCES)))
        try:
            results: list[EnvFinding] = pickle.loads(asked.result(seconds))
        except RunError as error:
            return [EnvFinding("error", relation, str(error))]
        return results

    def end(self) -> None:
        if self._process is not None:
            self._process.end()


def _packed(bound: BoundEnv) -> bytes:
    """Pickles an environment; raises where something that it needs cannot be pickled."""
    dataset = bound.spec.dataset
    places: Any = {"factory": place_of(bound.spec.factory)[0]}
    if dataset is not None:
        places["dataset"] = place_of(dataset)[0]
    spec = replace(bound.spec, options=(), ordered=None, resolve=None, settle=None, **places)
    return bytes(cloudpickle.dumps(replace(bound, spec=spec)))


def _unpacked(packed: bytes) -> BoundEnv:
    bound: BoundEnv = pickle.loads(packed)
    there: Any = {name: place.resolve() for name in ("factory", "dataset") if (place := getattr(bound.spec, name))}
    return replace(bound, spec=replace(bound.spec, **there))

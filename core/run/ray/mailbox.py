"""Passes events from a run on a cluster to the command that started it, and requests to stop the other way."""

from __future__ import annotations

import dataclasses
import json
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.cluster.ray_cluster import RemoteObject
from grpo.core.display.progress import Progress
from grpo.core.plan import Plan
from grpo.plugins.types import Completion

Event = tuple[str, Sequence[Any]]  # its name and what it says
ENDS = ("failed", "summary")  # the events that say how the run ended
KIND = "grpo.core.run.ray.mailbox:Mailbox"
POLL = 1.0  # seconds between two questions whether a stop was asked for


class Mailbox:
    """Keeps events until they are taken, and counts the requests to stop."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._stops = 0
        self._lock = threading.Lock()

    def tell(self, message: bytes) -> bytes:
        with self._lock:
            self._events.append(message)
        return b""

    def take(self, _: bytes) -> bytes:
        with self._lock:
            events, self._events = self._events, []
        return pickle.dumps(events)

    def stop(self, _: bytes) -> bytes:
        self._stops += 1
        return b""

    def stops(self, _: bytes) -> bytes:
        return json.dumps(self._stops).encode()


def written(event: str, *values: Any) -> bytes:
    message: bytes = event.encode() + b"\n" + cloudpickle.dumps(values)
    return message


def read(message: bytes) -> Event | None:
    """Returns the event of a message: None if it cannot be read here, a failure for an unreadable end."""
    name, _, values = message.partition(b"\n")
    event = name.decode()
    try:
        return event, pickle.loads(values)
    except Exception as error:  # whatever loading a stranger's class raises
        if event not in ENDS:
            return None
        how = "it failed" if event == "failed" else "it has ended"
        reason = f"{type(error).__name__}: {error}"
        text = (
            f"all that is known here of the run on the cluster is that {how}: its message cannot be read ({reason}). "
            "Install the same release of grpo-kit on this machine and on the cluster; the run directory says the rest."
        )
        return "failed", ("RunError", text)


def _told(event: str) -> Callable[..., None]:
    def tell(self: MailboxProgress, *values: Any) -> None:
        self._tell(event, *values)

    return tell


class MailboxProgress(Progress):
    """Tells a mailbox the events of a run; the command closes the display."""

    loading, warmed, evaluated = _told("loading"), _told("warmed"), _told("evaluated")
    foreseen, warned, ended, timed = _told("foreseen"), _told("warned"), _told("ended"), _told("timed")

    def __init__(self, mailbox: RemoteObject) -> None:
        self._mailbox = mailbox

    def planned(self, plan: Plan, run_dir: Path | None, notes: Sequence[str]) -> None:
        """Sends the plan; rows and functions stay here, since a display only counts and names them."""
        parts = tuple(
            replace(
                part,
                env=_named(part.env),
                rewards=tuple(map(_named, part.rewards)),
                verifier=part.verifier and _named(part.verifier),
                train=tuple(part.train[:1]) * len(part.train),
                held_out=tuple(part.held_out[:1]) * len(part.held_out),
            )
            for part in plan.envs
        )
        self._tell("planned", replace(plan, envs=parts, train=(), canaries=()), run_dir, list(notes))

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        self._tell("stepped", dict(row), sample, dict(scores))

    def _tell(self, event: str, *values: Any) -> None:
        self._mailbox.ask("tell", written(event, *values))


def _named(bound: Any) -> Any:
    """Returns a bound plugin without its code: the command need not have the file that it comes from."""
    fields = (
        (spec_field.name, getattr(bound.spec, spec_field.name))
        for spec_field in dataclasses.fields(bound.spec)
        if spec_field.init
    )
    spec = replace(bound.spec, **{name: print for name, value in fields if callable(value)})
    return replace(bound, spec=spec)

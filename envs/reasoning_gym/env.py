"""Wraps a dataset of reasoning-gym as an environment; its grader runs in a sandbox (`guest`)."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from grpo.envs.datasets.checks import refuse_size
from grpo.envs.graders.remote import Graders, Reply, runner
from grpo.envs.reasoning_gym import guest
from grpo.envs.reasoning_gym.known_exploits import KNOWN_EXPLOITS
from grpo.envs.text.single_turn import Asked, OneTurnEnv
from grpo.plugins.errors import DatasetError, OptionError

TEST_SEED = 2**20  # what the seed of the test split is ahead
SECONDS = 5.0
_MEMORY = 2**30  # of a process with the library, which takes a third of it
_SMALL = 16_384  # bytes of an attribute that goes along with every batch
_HARMLESS = ("", "0", "[]", "{}")  # one of them is read by every grader whose dataset tells no answer
# Where datasets whose problems have several right answers keep the one that they know.
_KNOWN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: str(metadata["example_answer"]),
    "rubiks_cube": lambda metadata: str(metadata["example_correct_answer"]),
}
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)


class Items:
    """The problems of one split. `split`: "train" or "test"."""

    def __init__(self, data: Any, split: str, recipe: tuple[str, int, int, str]) -> None:
        self._data = data
        self._split = split
        self._member = recipe[0]
        self._recipe = (*recipe, *_without_large(data))
        self._made: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._data)

    def entry(self, index: int) -> dict[str, Any]:
        if index not in self._made:
            self._made[index] = self._data[index]
        return self._made[index]

    def row(self, index: int) -> dict[str, Any]:
        """Returns the columns that rewards see; `answer` is None where the dataset tells none."""
        entry = self.entry(index)
        return {"question": entry["question"], "answer": entry["answer"], "split": self._split, "index": index}

    def known(self, index: int) -> str | None:
        """Returns a right answer, or None where the dataset knows none."""
        entry, member = self.entry(index), self._member
        if entry["answer"] is None and member in _KNOWN:
            return _KNOWN[member](entry["metadata"])
        return str(entry["answer"]) if isinstance(entry["answer"], str) else None

    def ask(
        self, answer: str, index: int, *, as_published: bool = False, sandbox: str = "", seconds: float = SECONDS
    ) -> Reply:
        """Returns the grader's result for an answer, as `guest.handle` does, or raises TransientError."""
        entry, known = self.entry(index), self.known(index)
        works = _HARMLESS if known is None else (known,)
        return graders(sandbox, seconds).ask(
            (self._recipe, entry, answer, as_published),
            [(self._recipe, entry, each, True) for each in works],
            alone=as_published and self._member in KNOWN_EXPLOITS,
        )


@lru_cache(maxsize=8)
def graders(sandbox: str, seconds: float) -> Graders:
    """Returns the graders in a sandbox. Raises UsageError, SandboxUnavailable."""
    run = runner("reasoning_gym", sandbox)
    return Graders("reasoning_gym", guest, run, seconds=seconds, memory=_MEMORY)


def _without_large(data: Any) -> tuple[bytes, frozenset[str]]:
    """The small attributes of a dataset as a pickle, and the names of the others."""
    small: dict[str, Any] = {}
    for name, value in vars(data).items():
        try:
            if len(pickle.dumps(value, protocol=5)) <= _SMALL:
                small[name] = value
        except (pickle.PicklingError, TypeError, AttributeError):  # a lambda, or another thing of its own process
            continue
    return pickle.dumps(small, protocol=5), frozenset(vars(data)).difference(small)


def items_of(member: str, split: str, size: int, seed: int, config: Mapping[str, Any]) -> Items:
    """Returns the problems of a split. Raises OptionError if the dataset refuses its settings."""
    refuse_size(size, f"reasoning_gym:{member}")
    return _items(member, split, size, seed, json.dumps(dict(config), sort_keys=True))


@lru_cache(maxsize=16)
def _items(member: str, split: str, size: int, seed: int, config: str) -> Items:
    import reasoning_gym

    chosen = json.loads(config)
    own = seed + (TEST_SEED if split == "test" else 0)
    try:
        data = reasoning_gym.create_dataset(member, size=size, seed=own, **chosen)
        return Items(data, split, (member, size, own, config))
    except (AssertionError, TypeError, ValueError, LookupError) as error:
        raise OptionError(
            f"reasoning_gym:{member} refuses {chosen or f'size={size}'}: {error}. See its options with: "
            f"grpo plugins show reasoning_gym:{member}"
        ) from error


class ReasoningEnv(OneTurnEnv):
    """Asks problems of a dataset and scores the answers with its grader, within `seconds` of processor time."""

    def __init__(
        self, member: str, items: Mapping[str, Items], system: str, *, as_published: bool, sandbox: str, seconds: float
    ) -> None:
        train = items["train"]
        super().__init__(self._asked, lambda: [train.row(index) for index in range(len(train))])
        graders(sandbox, seconds)
        self._member = member
        self._items = items
        self._system = system
        self._how: Mapping[str, Any] = {"as_published": as_published, "sandbox": sandbox, "seconds": seconds}
        self._row: Mapping[str, Any] = {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Scores the completion and ends the episode; raises what `OneTurnEnv.step` and `Items.ask` raise."""
        shown, _, ended, cut, _ = super().step(action)
        reply = self._items[self._row["split"]].ask(answer_of(action), self._row["index"], **self._how)
        score = 0.0 if reply.value is None else float(reply.value["score"])
        reason = reply.reason if reply.value is None else reply.value["refused"]
        if not math.isfinite(score):  # a grader as published
            score, reason = 0.0, f"the grader gave {score}"
        info: dict[str, Any] = {"scores": {"score": score}, "success": score >= 1.0}
        return shown, score, ended, cut, {**info, "reason": reason} if reason else info

    def _asked(self, row: Any) -> Asked:
        items = self._items.get(str(row.get("split"))) if isinstance(row, Mapping) else None
        if items is None or not isinstance(row.get("index"), int) or not 0 <= row["index"] < len(items):
            raise DatasetError(f"reasoning_gym:{self._member}: a row needs the columns split and index, not {row!r}.")
        self._row = row
        entry, known = items.row(row["index"]), items.known(row["index"])
        worked = "" if known is None else f"<answer>{known}</answer>"
        return Asked(entry["question"], entry, self._system, worked)


def answer_of(completion: str) -> str:
    """Returns what stands in the last `<answer>`, or else the whole completion."""
    tagged = _ANSWER.findall(completion)
    return (tagged[-1] if tagged else completion).strip()

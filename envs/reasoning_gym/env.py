"""Problems of reasoning-gym as an environment: a dataset's name and settings in, questions and their scores out.

A dataset makes its problems one by one by their number, some of them slowly, so each is made once in a process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from grpo.envs.rows.size import refuse_size
from grpo.envs.text.single_turn import Asked, OneTurnEnv
from grpo.plugins.errors import DatasetError, OptionError

TEST_SEED = 2**20  # what the seed of the test split is ahead
NO_ANSWER = {"prime_factorization": ValueError}  # graders that raise where the answer cannot be read
# Where datasets whose problems have several right answers keep the one that they know.
_KNOWN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: str(metadata["example_answer"]),
    "rubiks_cube": lambda metadata: str(metadata["example_correct_answer"]),
}
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)


class Items:
    """The problems of one split.

    Args:
        data: a dataset of reasoning-gym.
        split: "train" or "test".
    """

    def __init__(self, data: Any, split: str) -> None:
        self._data = data
        self._split = split
        self._made: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._data)

    def entry(self, index: int) -> dict[str, Any]:
        """Returns a problem as the dataset made it."""
        if index not in self._made:
            self._made[index] = self._data[index]
        return self._made[index]

    def row(self, index: int) -> dict[str, Any]:
        """Returns the columns that rewards see; `answer` is None where the dataset tells none."""
        entry = self.entry(index)
        return {"question": entry["question"], "answer": entry["answer"], "split": self._split, "index": index}

    def score(self, answer: str, index: int) -> float:
        """Returns the grader's score."""
        return float(self._data.score_answer(answer, self.entry(index)))


def items_of(member: str, split: str, size: int, seed: int, config: Mapping[str, Any]) -> Items:
    """Returns the problems of a split.

    Raises:
        OptionError: the dataset refuses its settings.
    """
    refuse_size(size, f"reasoning_gym:{member}")
    return _items(member, split, size, seed, json.dumps(dict(config), sort_keys=True))


@lru_cache(maxsize=16)
def _items(member: str, split: str, size: int, seed: int, config: str) -> Items:
    import reasoning_gym

    chosen = json.loads(config)
    own = seed + (TEST_SEED if split == "test" else 0)
    try:
        return Items(reasoning_gym.create_dataset(member, size=size, seed=own, **chosen), split)
    except (AssertionError, TypeError, ValueError, LookupError) as error:
        raise OptionError(
            f"reasoning_gym:{member} refuses {chosen or f'size={size}'}: {error}. See its options with: "
            f"grpo plugins show reasoning_gym:{member}"
        ) from error


class ReasoningEnv(OneTurnEnv):
    """Asks problems of a dataset and scores the answers with its grader.

    Args:
        member: the dataset.
        items: the problems of the splits.
        system: the system message, or "".
    """

    def __init__(self, member: str, items: Mapping[str, Items], system: str) -> None:
        train = items["train"]
        super().__init__(self._asked, lambda: [train.row(index) for index in range(len(train))])
        self._member = member
        self._items = items
        self._system = system
        self._row: Mapping[str, Any] = {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Scores the completion and ends the episode; raises what `OneTurnEnv.step` and the grader raise."""
        shown, _, ended, cut, _ = super().step(action)
        try:
            score = self._items[self._row["split"]].score(answer_of(action), self._row["index"])
        except NO_ANSWER.get(self._member, ()):
            score = 0.0
        return shown, score, ended, cut, {"scores": {"score": score}, "success": score >= 1.0}

    def _asked(self, row: Any) -> Asked:
        items = self._items.get(str(row.get("split"))) if isinstance(row, Mapping) else None
        if items is None or not isinstance(row.get("index"), int) or not 0 <= row["index"] < len(items):
            raise DatasetError(f"reasoning_gym:{self._member}: a row needs the columns split and index, not {row!r}.")
        self._row = row
        found = items.row(row["index"])
        answer = found["answer"]
        if answer is None and self._member in _KNOWN:
            answer = _KNOWN[self._member](items.entry(row["index"])["metadata"])
        worked = f"<answer>{answer}</answer>" if isinstance(answer, str) else ""
        return Asked(found["question"], found, self._system, worked)


def answer_of(completion: str) -> str:
    """Returns what stands in the last `<answer>`, or else the whole completion."""
    tagged = _ANSWER.findall(completion)
    return (tagged[-1] if tagged else completion).strip()

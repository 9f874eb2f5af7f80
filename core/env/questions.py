"""Finds episodes that ask the same question, so that no held-out question is trained on.

With one turn the prompt is the question. With several turns it is prompt and row, since an episode may hide something
in its row; where the rows of made-up episodes are all the same, each seed is a question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from grpo.core.env.episodes import Episode, Episodes
from grpo.plugins._spec.binding import BoundEnv

DIGEST = 16  # bytes


@dataclass(frozen=True, slots=True)
class Question:
    """What makes two episodes of an environment ask the same."""

    row: bool = False  # their rows are part of it
    seed: bool = False  # their arguments of `reset` are

    def of(self, episode: Episode) -> bytes:
        asked = [episode.env, episode.prompt, episode.row if self.row else None, episode.reset if self.seed else None]
        return blake2b(json.dumps(asked, sort_keys=True, default=str).encode(), digest_size=DIGEST).digest()


def question_of(env: BoundEnv, episodes: Sequence[Episode]) -> Question:
    """Returns what makes two of an environment's episodes ask the same."""
    if env.spec.max_turns == 1:
        return Question()
    if env.spec.dataset is not None:
        return Question(row=True)
    first = episodes[0].row if episodes else None
    return Question(row=True, seed=all(episode.row == first for episode in episodes))


def questions_of(env: BoundEnv, episodes: Sequence[Episode]) -> list[bytes]:
    question = question_of(env, episodes)
    return [question.of(episode) for episode in episodes]


def asked_by(question: Question, held_out: Sequence[Episode], train: Sequence[Episode]) -> set[bytes]:
    """Returns the questions of held-out episodes that training episodes ask; starts only rows that may ask them."""
    wanted, asked = set[bytes](), set[int | None]()
    for episode in held_out:
        wanted.add(question.of(episode))
        asked.add(episode.asked)
    candidates: Iterable[Episode] = train
    if isinstance(train, Episodes) and train.asked is not None and None not in asked:
        candidates = train.some([number for number, key in enumerate(train.asked) if key in asked])
    return {digest for episode in candidates if (digest := question.of(episode)) in wanted}

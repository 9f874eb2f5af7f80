"""Asks a question of the user's own the way an environment asks its questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import episodes_of
from grpo.core.env.mixture import with_dataset
from grpo.core.policy.weights import Weights
from grpo.core.record.browse import read_step
from grpo.core.record.run_dir import rollout_steps
from grpo.plugins.host import Host
from grpo.plugins.types import Message

EMBEDDED_ENV = "gsm8k"  # the environment that the embedded model was taught on
QUESTION = 8  # characters; a shorter column that occurs in the message is hardly its question


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt of the environment, and the columns that it was made from."""

    prompt: Sequence[Message] = (Message(role="user", content=""),)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, text: str) -> list[Message]:
        """Returns the prompt with the text for the longest column in its last user message, or for all of it."""
        messages = list(self.prompt)
        asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
        if not asked:
            return [*messages, Message(role="user", content=text)]
        content = messages[asked[-1]]["content"]
        texts = [v for v in self.columns.values() if isinstance(v, str) and len(v) >= QUESTION and v in content]
        question = max(texts, key=len, default=content)
        changed = content.replace(question, text, 1) if question else text
        messages[asked[-1]] = Message(role="user", content=changed)
        return messages


def example_of(weights: Weights, env: str | None, host: Host) -> Example:
    """Finds the prompt to imitate: the named environment's, else the run's, else a bare user message.

    Raises UsageError if the environment or its rows cannot be used.
    """
    if env is None and weights.run is not None and (steps := rollout_steps(weights.run)):
        first = read_step(weights.run, steps[0])[1][0]
        return Example(first.prompt, first.columns)
    config = weights.config
    if env is not None:
        # Only the layout of the prompt is wanted, so the rows are those that the environment has by default.
        config = RunConfig(env=env)
    elif config is None:
        if not weights.embedded:
            return Example()
        config = RunConfig(env=EMBEDDED_ENV)
    (episode,) = episodes_of(with_dataset(host.env(config.envs[0]), config), "train", limit=1, unbounded=1)
    return Example(episode.prompt, episode.row)

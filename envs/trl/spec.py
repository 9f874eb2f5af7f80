"""Provides the environments `trl:MODULE:CLASS`: classes written for the `environment_factory` of TRL's GRPOTrainer.

TRL itself is not imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.members import member_spec, named_module
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound, did_you_mean
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

MOST_TURNS = 20
TEST_SEED = 2**20


def make(
    member: str, *, dataset: str | None = None, subset: str | None = None, prompt: str = "", size: int = 500
) -> gymnasium.Env[str, str]:
    """A class for TRL's environment_factory: `trl:./games.py:Door`.

    Args:
        member: module and class, or file and class.
        dataset: rows with a column prompt (text or messages), whose columns `reset` gets: a file, a folder or a hub id;
            default: every row is the prompt below.
        subset: the configuration of a hub dataset.
        prompt: the user's message without a dataset; `reset` may add to it.
        size: episodes in each split without a dataset.

    Returns:
        An environment of several turns with tools.

    Raises:
        PluginNotFound: there is no such module, file or class.
        OptionError: the class has no `reset`.
    """
    from grpo.envs.trl.env import ToolEnv

    read_rows = partial(rows, member, "train", dataset=dataset, subset=subset, prompt=prompt, size=size)
    return ToolEnv(f"trl:{member}", _factory(member), read_rows, made=dataset is None)


def rows(
    member: str, split: str, *, dataset: str | None = None, subset: str | None = None, prompt: str = "", size: int = 500
) -> Sequence[Mapping[str, Any]]:
    """Returns the rows of a split; without a dataset only `episode` differs. Raises DatasetError, OptionError."""
    from grpo.envs.datasets.checks import refuse_size
    from grpo.envs.datasets.sources import dataset_kind, read_placed
    from grpo.envs.datasets.stored import checked_rows

    if dataset is None:
        refuse_size(size, f"trl:{member}")
        first = TEST_SEED if split == "test" else 0
        messages = [{"role": "user", "content": prompt}]
        return [{"prompt": messages, "episode": first + number} for number in range(size)]
    kind = dataset_kind(dataset)
    if kind == "embedded":
        raise OptionError(
            f"trl:{member} has no embedded rows. Name a file, a folder or a hub id, or leave dataset out."
        )
    return checked_rows(read_placed(dataset, subset, split, kind), _read, _asks)


def _read(row: object, where: str) -> dict[str, Any]:
    """Raises DatasetError: the prompt is missing, or holds something else than text."""
    if not isinstance(row, Mapping) or not isinstance(row.get("prompt"), str | list):
        raise DatasetError(f"{where}: it has no column 'prompt' with text or messages, as TRL's datasets have.")
    return {**row, "prompt": _texts(row["prompt"], where)}


def _asks(row: dict[str, Any]) -> str:
    prompt = row["prompt"]
    return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def _texts(prompt: str | list[Any], where: str) -> str | list[dict[str, Any]]:
    """Joins the parts of messages that are text. Raises DatasetError."""
    if isinstance(prompt, str):
        return prompt
    messages = []
    for number, message in enumerate(prompt, start=1):
        what = f"{where}: the column 'prompt', message {number}"
        if not isinstance(message, Mapping) or "role" not in message:
            raise DatasetError(f'{what} must be an object such as {{"role": "user", "content": "..."}}.')
        content = message.get("content")
        if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
            parts = [part.get("text") for part in content if part.get("type") == "text"]
            content = "".join(map(str, parts)) if len(parts) == len(content) else content
        if content is None and message.get("tool_calls") and number < len(prompt):
            content = ""
        if not isinstance(content, str):
            raise DatasetError(f"{what} has content that is no text. Only texts can be shown to the policy.")
        messages.append({**message, "content": content})
    if not messages:
        raise DatasetError(f"{where}: the column 'prompt' is an empty list. Write a message, or leave the row out.")
    return messages


def resolve(member: str) -> EnvSpec:
    """Returns the spec of one class. Raises PluginNotFound: no such module, file or class; OptionError: no `reset`."""
    rewarded = callable(getattr(_factory(member), "get_reward", None))
    rewards = TRL.rewards if rewarded else ()
    return member_spec(TRL, member, make, dataset=partial(rows, member), rewards=rewards)


def _factory(member: str) -> Callable[[], Any]:
    place, colon, name = member.rpartition(":")
    if not colon or not place:
        raise PluginNotFound(f"'{member}' names no class. Write trl:MODULE:CLASS or trl:./file.py:CLASS.")
    module = named_module(place, f"trl:{member}", f"trl:./file.py:{name}")
    target = getattr(module, name, None)
    if not callable(target):
        classes = [other for other, value in vars(module).items() if inspect.isclass(value)]
        raise PluginNotFound(f"'{place}' has no class '{name}'.{did_you_mean(name, classes)}")
    if inspect.isclass(target) and not callable(getattr(target, "reset", None)):
        raise OptionError(f"trl:{member}: the class has no method reset, which environment_factory asks for.")
    return target  # type: ignore[no-any-return]


TRL = env(name="trl", version=1, rewards=("environment",), max_turns=MOST_TURNS, resolve=resolve)(make)

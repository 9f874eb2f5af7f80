"""Defines the request to an agent program for one episode, and the result of the episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpo.core.text.printable import one_line
from grpo.plugins.agents import AgentTask
from grpo.plugins.errors import DatasetError

if TYPE_CHECKING:
    from grpo.core.env.episodes import Episode
    from grpo.core.env.step import StepAnswer


@dataclass(frozen=True, slots=True)
class AgentExit:
    """What is left of an agent when every process that it started is dead."""

    code: int | None  # its exit status, negative for a signal; None where it did not start
    timed_out: bool
    seconds: float  # from start to end
    # what a Python agent returned, or a command wrote to stdout where its plugin says that this is the answer; None:
    # the answer is the last message of the policy
    answer: str | None = None
    # stdout, stderr: the last characters of each
    stdout: str = ""
    stderr: str = ""
    # path in the working directory to text, of those that it made or changed (None: it deleted it), within limits
    files: Mapping[str, str | None] = field(default_factory=dict)
    files_omitted: int = 0  # how many files were over these limits
    problem: str = ""  # why it did not start, or broke; "" otherwise
    outside: bool = False  # the problem came from where nothing that the agent ran can reach
    graded: StepAnswer | None = None  # the last step of the environment, where the program ran in its session


def task_of(episode: Episode) -> AgentTask:
    """Returns what an episode asks: its messages, and the files of its row. DatasetError: they are no texts."""
    asked = [message["content"] for message in episode.prompt if message["role"] != "system"]
    system = [message["content"] for message in episode.prompt if message["role"] == "system"]
    files: Any = episode.row.get("files") or {}
    if isinstance(files, Mapping):  # a table has a column for each path of any row, empty where a row lacks it
        files = {path: text for path, text in files.items() if text is not None}
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise DatasetError(
            f"{episode.place or f'row {episode.index}'}: an agent finds the files of the column 'files' in its working "
            f"directory, so it must map paths to texts, and is {one_line(repr(files), 60)}."
        )
    return AgentTask("\n\n".join(asked), "\n\n".join(system) or None, files)

"""Says what an agent program is asked in an episode, and defines what is left of it when it has ended."""

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
    """What is left of an agent when every process that it started is dead.

    Attributes:
        code: its exit status, negative for a signal; None where it did not start.
        timed_out: it was ended by its time limit.
        seconds: from start to end.
        answer: what a Python agent returned, or what a command wrote to stdout where its plugin says that this is the
            answer; None: the answer is the last message of the policy.
        stdout, stderr: the last characters of each.
        files: path in the working directory to text, of those that the agent made or changed (None: it deleted it);
            within limits of number and size.
        files_omitted: how many files were over these limits.
        problem: why it did not start, or broke; "" otherwise.
        graded: the last step of the environment, where the program ran in its session.
        outside: the problem came from where nothing that the agent ran can reach, so that no policy can have chosen it.
    """

    code: int | None
    timed_out: bool
    seconds: float
    answer: str | None = None
    stdout: str = ""
    stderr: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    files_omitted: int = 0
    problem: str = ""
    outside: bool = False
    graded: StepAnswer | None = None


def task_of(episode: Episode) -> AgentTask:
    """Returns what an environment's episode asks of an agent: its messages, and the files of its row.

    Raises DatasetError: the row's column `files` is no object of texts.
    """
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

"""What an agent is asked in an episode: the environment's messages, and the files of its row."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.core.agents.program import task_of
from grpo.core.env.episodes import Episode
from grpo.plugins.errors import DatasetError
from grpo.plugins.types import Message


def episode(files: Any) -> Episode:
    prompt = (Message(role="system", content="Be brief."), Message(role="user", content="Count the lines."))
    return Episode(3, prompt, {"answer": "2", "files": files}, None, place="tasks.jsonl, line 4")


def test_a_task_has_the_messages_and_the_files_of_its_row_and_no_answer() -> None:
    task = task_of(episode({"a.txt": "1\n2\n", "b.txt": None}))  # another row has b.txt
    assert (task.instruction, task.system) == ("Count the lines.", "Be brief.")
    assert task.files == {"a.txt": "1\n2\n"}
    assert task_of(episode(None)).files == {}


@pytest.mark.parametrize("files", ["a.txt", ["a.txt"], {"a.txt": 3}, {"a.txt": {"text": "1"}}])
def test_a_column_of_files_that_is_none_is_refused_with_its_place(files: Any) -> None:
    with pytest.raises(DatasetError, match=r"tasks\.jsonl, line 4: .* the column 'files'"):
        task_of(episode(files))

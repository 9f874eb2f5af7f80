"""A folder of another machine comes over whole, and not where both machines see it already."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from grpo.core.run.ray import download as module
from grpo.core.run.ray.download import FolderThere, fetch
from grpo.plugins.errors import RunError


class Direct:
    name = "there"

    def __init__(self, path: Path) -> None:
        self.folder = FolderThere(str(path))

    def ask(self, method: str, message: bytes = b"") -> Future[bytes]:
        answer: Future[bytes] = Future()
        answer.set_result(getattr(self.folder, method)(message))
        return answer


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there" / "run"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(bytes(range(256)) * 100)
    (folder / "state.json").write_text("{}")
    return folder


def test_it_comes_over_in_pieces_with_its_files(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 1000)
    here = tmp_path / "here" / "run"
    assert fetch(Direct(there), here)
    assert (here / "model" / "weights").read_bytes() == (there / "model" / "weights").read_bytes()
    assert sorted(one.name for one in here.iterdir()) == ["model", "state.json"]
    assert [one.name for one in here.parent.iterdir()] == ["run"]


def test_a_folder_that_both_machines_see_is_left_alone(there: Path) -> None:
    assert not fetch(Direct(there), there)
    assert sorted(one.name for one in there.iterdir()) == ["model", "state.json"]


def test_nothing_is_written_over_here_or_made_of_nothing_there(there: Path, tmp_path: Path) -> None:
    assert not fetch(Direct(tmp_path / "nowhere"), tmp_path / "here")
    assert not (tmp_path / "here").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").touch()
    with pytest.raises(RunError, match="is not empty"):
        fetch(Direct(there), other)

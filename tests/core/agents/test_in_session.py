"""Agents inside the session of their episode: what they reach, what is graded, and what ends with them."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from patience import PATIENCE
from session_agents import gateway, played

from grpo.core.agents.in_session import SessionPrograms
from grpo.core.agents.program import AgentExit
from grpo.core.env.episodes import Episode
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.agents import Access
from grpo.plugins.factory_decorators import env
from grpo.plugins.host import Host
from grpo.plugins.pools import close_sessions, sessions_of
from grpo.plugins.session import Session, SessionJob

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
ASK = """
import os, sys, urllib.request
print(urllib.request.urlopen(os.environ["OPENAI_BASE_URL"]).read().decode(), end="", flush=True)
"""


@pytest.fixture(scope="module")
def access() -> Iterator[Access]:
    with gateway() as access:
        yield access
    close_sessions()


def script(folder: Path, text: str) -> str:
    folder.chmod(0o755)
    path = folder / "agent.py"
    path.write_text(ASK + text, encoding="utf-8")
    path.chmod(0o644)
    return f"cmd:python {path} {{instruction}}"


def test_a_program_works_where_its_episode_is_graded_and_reaches_the_gateway(access: Access, tmp_path: Path) -> None:
    agent = script(tmp_path, "open('answer.txt', 'w').write('42')\nprint(sys.argv[1], os.getcwd())")
    left = played(agent, access, tmp_path, "test $(cat answer.txt) = 42")
    assert (left.code, left.problem, left.outside) == (0, "", False)
    assert left.stdout == "policyWrite 42 into answer.txt. /workspace\n"
    assert left.graded is not None
    assert (left.graded.reward, left.graded.final_info["success"]) == (1.0, True)


def test_what_a_program_leaves_running_is_dead_before_its_episode_is_graded(access: Access, tmp_path: Path) -> None:
    late = "import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 1; echo 42 > answer.txt'], start_new_session=True)"
    left = played(script(tmp_path, late), access, tmp_path, "sleep 2; test -f answer.txt")
    assert left.graded is not None
    assert (left.code, left.graded.reward) == (0, 0.0)


def test_a_program_sees_its_script_and_not_what_lies_beside_it(access: Access, tmp_path: Path) -> None:
    look = (
        "here = os.path.dirname(os.path.abspath(__file__))\nprint(os.listdir(here), os.environ['OPENAI_API_KEY'])\n"
        "import urllib.error\n"
        "try:\n    urllib.request.urlopen('http://127.0.0.1:1')\nexcept urllib.error.URLError:\n    print('refused')"
    )
    left = played(script(tmp_path, look), access, tmp_path, "true")
    assert left.stdout == "policy['agent.py'] the-key\nrefused\n"


def test_a_python_agent_sees_the_file_that_an_option_names_and_not_what_lies_beside_it(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options").mkdir()
    for name in ("notes.txt", "secret.txt"):
        Path("options", name).write_text(name)
    Path("mine.py").write_text(
        "from pathlib import Path\ndef run(task, access, *, notes: Path):\n"
        "    return f'{notes.read_text()} {[path.name for path in notes.parent.iterdir()]}'\n"
    )
    left = played("python:mine.py:run:notes=options/notes.txt", access, tmp_path, "true")
    assert (left.answer, left.stderr) == ("notes.txt ['notes.txt']", "")


def test_no_program_sees_the_tasks_though_the_folder_around_them_is_shared(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text("import pathlib\n\n\nSEEN = pathlib.Path(__file__).with_name('tasks.jsonl')\n")
    path = tmp_path / "mine.py"
    path.write_text("def run(task, access):\n    import beside\n\n    return beside.SEEN.read_text() + 'nothing'\n")
    left = played(f"python:{path}:run", access, tmp_path, "true")
    assert (left.answer, left.stderr) == ("nothing", "")


def test_no_program_sees_the_run_though_the_folder_around_it_is_shared(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    path = tmp_path / "mine.py"
    path.write_text(f"import os\n\n\ndef run(task, access):\n    return str(os.listdir({str(run)!r}))\n")
    left = played(f"python:{path}:run", access, tmp_path, "true", hidden=[str(run)])
    assert (left.answer, left.stderr) == ("[]", "")


def test_files_that_a_program_changed_are_read_back(access: Access, tmp_path: Path) -> None:
    agent = script(
        tmp_path,
        "open('answer.txt', 'w').write('42')\nos.makedirs('a/b')\nopen('a/b/c', 'wb').write(b'\\xff')\n"
        "os.symlink('/etc/passwd', 'link')\nos.truncate(os.open('holes', os.O_CREAT | os.O_WRONLY), 1 << 40)",
    )
    left = played(agent, access, tmp_path, "true")
    assert (left.files, left.files_omitted) == ({"answer.txt": "42", "a/b/c": "\ufffd"}, 1)


def test_a_python_agent_returns_its_answer(access: Access, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "mine.py"
    text = (
        "import pathlib\n\n\nasync def run(task, access):\n"
        "    pathlib.Path(task.directory, 'answer.txt').write_text('42')\n"
        "    return f'{task.instruction} {access.key}'\n"
    )
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    left = played(f"python:{path}:run", access, tmp_path, "test $(cat answer.txt) = 42")
    assert left.graded is not None
    assert (left.answer, left.stderr, left.graded.reward) == ("Write 42 into answer.txt. the-key", "", 1.0)


def test_a_program_that_is_to_end_is_killed_and_graded(access: Access, tmp_path: Path) -> None:
    left = played(script(tmp_path, "import time\ntime.sleep(600)"), access, tmp_path, "true", kill=True)
    assert left.graded is not None
    assert (left.code, left.outside, left.graded.reward) == (-9, False, 1.0)


def test_a_program_that_kills_everything_is_graded_as_it_stands(access: Access, tmp_path: Path) -> None:
    agent = script(tmp_path, "open('answer.txt', 'w').write('42')\nos.kill(-1, 9)")
    left = played(agent, access, tmp_path, "test $(cat answer.txt) = 42")
    assert left.graded is not None
    assert (left.outside, left.graded.reward) == (False, 1.0)


def test_an_episode_that_cannot_be_opened_is_a_failure_and_no_zero(access: Access, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").touch()
    host = Host.discover()
    bound = host.env(f"shell:{tmp_path}/tasks.jsonl")
    left: queue.Queue[AgentExit] = queue.Queue()
    programs = SessionPrograms(host.agent(script(tmp_path, "print(1)")), [bound], PATIENCE)
    episode = Episode(0, (), {}, None, {"options": {"row": {"instruction": "no grader"}}}, env=bound.name)
    programs.start(1, episode, access, left.put)
    broken = left.get(timeout=PATIENCE)
    programs.close()
    assert (broken.code, broken.outside, broken.graded) == (None, True, None)
    assert "no column 'grader'" in broken.problem


class Faulty(gymnasium.Env[str, str]):
    """Has a session, and a method that fails in one of `ways`; `how`: its name, and the way."""

    ways: ClassVar[dict[str, Callable[[], object]]] = {"exit": lambda: sys.exit(3), "end": lambda: os._exit(3)}

    def __init__(self, how: str) -> None:
        self.how = how
        self.session: Session | None = None

    def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
        self.fail("reset")
        return "Do it.", {}

    def open_session(self, **fields: Any) -> Session:
        self.fail("open")
        self.session = sessions_of("local").open(SessionJob(**fields))
        return self.session

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.fail("step")
        return "", 1.0, True, False, {}

    def close(self) -> None:
        if self.session is not None:
            self.session.close()

    def fail(self, method: str) -> None:
        name, _, way = self.how.partition(" ")
        if name == method:
            self.ways[way]()


@env(version=1, max_turns=2)
def faulty(*, how: str, session: str = "local") -> gymnasium.Env[str, str]:
    """Fails.

    Args:
        how: the method that fails, and the way.
        session: the SPEC of the session.
    """
    return Faulty(how)


@pytest.mark.core
@pytest.mark.parametrize(
    ("how", "seconds", "reason"),
    [
        ("reset exit", PATIENCE, "SystemExit: 3 (at"),
        ("open end", PATIENCE, "SystemExit: it called os._exit(3) (at"),
        ("step exit", PATIENCE, "SystemExit: 3 (at"),
        ("reset hang", 0.05, "TimeoutError: no answer within 0.05 s"),
    ],
)
def test_an_environment_that_exits_or_hangs_fails_its_episode_and_no_run_waits_for_it(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, seconds: float, reason: str
) -> None:
    released = threading.Event()
    monkeypatch.setitem(Faulty.ways, "hang", lambda: released.wait(PATIENCE))
    left: queue.Queue[AgentExit] = queue.Queue()
    bound = BoundEnv(faulty, options={"how": how})
    programs = SessionPrograms(Host.discover().agent(script(tmp_path, "")), [bound], seconds)
    programs.start(1, Episode(0, ({"role": "user", "content": "Do it."},), {}, None, env="faulty"), access, left.put)
    broken = left.get(timeout=PATIENCE)
    released.set()
    programs.close()
    assert (broken.code, broken.outside, broken.graded) == (None, True, None)
    assert f"env 'faulty' failed: {reason}" in broken.problem

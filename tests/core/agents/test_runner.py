"""An agent is ended with all that it started and leaves nothing behind, whatever it does; its end is told as it was."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from played_agent import TASK, Played, play, played

from grpo.core.agents.folder import MOST_FILES
from grpo.core.agents.kernel import namespaces_refused
from grpo.core.agents.supervisor import KEPT
from grpo.plugins.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]
FORGED = """
import os

def run(task, access):
    for number in range(3, 64):
        try:
            os.write(number, b'%s')
        except OSError:
            pass
    os._exit(0)
"""  # what a policy's code can do in the process of a Python agent
BOTH = pytest.mark.parametrize("namespaces", [True, False])


@pytest.fixture(autouse=True)
def _given(request: pytest.FixtureRequest) -> None:
    refused = namespaces_refused()
    if refused and getattr(request.node, "callspec", None) and request.node.callspec.params.get("namespaces"):
        pytest.skip(f"no namespaces here: {refused}")


def program(source: str) -> str:
    """Returns the SPEC of a Python program without the site packages, which takes milliseconds to start."""
    return f"cmd:{sys.executable} -I -S -c {shlex.quote(textwrap.dedent(source))}"


def until(condition: object) -> None:
    """Waits a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@BOTH
def test_an_agent_gets_its_task_and_an_almost_empty_environment(
    namespaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    left = play(program("import os, sys; print(sys.stdin.read(), sorted(os.environ))"), namespaces=namespaces)
    assert left.code == 0
    assert left.stdout.startswith("say hello ")
    variables = {name.strip("' ") for name in left.stdout.partition("[")[2].rstrip("]\n").split(",")}
    doors = {f"{api}_{what}" for api in ("OPENAI", "ANTHROPIC") for what in ("BASE_URL", "API_KEY", "MODEL")}
    assert variables - {"LC_CTYPE"} == {*doors, "HOME", "LANG", "PATH", "TMPDIR"}


@BOTH
def test_values_stand_in_an_argument_and_are_not_read_again(namespaces: bool) -> None:
    task = replace(TASK, instruction="use {key}", system="be brief")
    spec = program("import sys; print(sys.argv[1:], sys.stdin.read())") + " '<{instruction}>' --at={url}/{model}"
    left = play(spec, task, namespaces=namespaces)
    assert left.stdout == "['<be brief\\n\\nuse {key}>', '--at=http://127.0.0.1:9/policy'] \n"


@pytest.mark.core
def test_every_episode_has_the_same_paths_and_files_of_its_own() -> None:
    if refused := namespaces_refused():
        pytest.skip(f"no namespaces here: {refused}")
    source = """
        import os
        print(os.getcwd(), os.environ["HOME"], os.listdir("/tmp"), os.listdir("/var/tmp"), os.listdir("/dev/shm"))
        for folder in ("/tmp", "/var/tmp", "/dev/shm", "."):
            open(f"{folder}/mine", "x")
    """
    with played(program(source)) as agents:
        for number in range(3):
            agents.start(number)
        ends = dict(agents.end() for _ in range(3))
    assert {left.code for left in ends.values()} == {0}
    assert len({left.stdout for left in ends.values()}) == 1
    assert ends[0].stdout.startswith("/tmp/work /tmp/home ")


@pytest.mark.core
def test_other_files_of_the_machine_are_read_only(tmp_path: Path) -> None:
    if refused := namespaces_refused():
        pytest.skip(f"no namespaces here: {refused}")
    script, kept = tmp_path / "agent.py", tmp_path / "kept"
    kept.write_text("kept")
    script.write_text(
        f"import pathlib\nfor path in ({str(kept)!r}, {str(Path.home() / 'new-file-of-an-agent')!r}):\n"
        "    try:\n        pathlib.Path(path).write_text('changed')\n    except OSError as error:\n"
        "        print(error.strerror)\n"
    )
    left = play(f"cmd:{sys.executable} {script}")
    assert left.stdout == "Read-only file system\n" * 2, left.stderr
    assert kept.read_text() == "kept"


def test_settings_of_the_machine_are_read_only_even_for_root() -> None:
    if refused := namespaces_refused():
        pytest.skip(f"no namespaces here: {refused}")
    source = """
        import os
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/1/fd/2", "/proc/1/environ"):
            try:
                os.close(os.open(path, os.O_RDONLY if path.endswith("environ") else os.O_WRONLY))
                print(path)
            except OSError:
                pass
    """
    assert play(program(source)).stdout == ""


@BOTH
def test_files_that_it_made_changed_and_deleted_are_read_back(namespaces: bool) -> None:
    source = """
        import os
        os.remove("notes/first.txt")
        open("second.txt", "a").write("more\\n")
        os.makedirs("deep/er")
        open("deep/er/new", "wb").write(b"\\xff!")
        os.symlink("/etc/passwd", "link")
        os.symlink("/", "root")
        os.mkfifo("pipe")
        open(os.environ["HOME"] + "/of-its-own", "w").write("not told")
    """
    left = play(program(source), namespaces=namespaces)
    assert left.files == {"deep/er/new": "\ufffd!", "notes/first.txt": None, "second.txt": "two\nmore\n"}
    assert left.files_omitted == 0


@BOTH
def test_what_is_read_back_is_bounded(namespaces: bool) -> None:
    source = f"""
        for number in range({MOST_FILES + 5}):
            open(str(number), "w").write("x")
        with open("large", "wb") as file:
            file.truncate(1 << 40)
    """
    left = play(program(source), replace(TASK, files={}), namespaces=namespaces)
    assert (len(left.files), left.files_omitted) == (MOST_FILES, 6)


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", "", "a/", "x\0y", "second.txt/below"])
def test_a_file_of_a_task_that_leads_elsewhere_is_a_problem(path: str) -> None:
    left = play("cmd:true", replace(TASK, files={"second.txt": "", path: "x"}))
    assert left.code is None
    assert repr(path) in left.problem


@BOTH
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
        ("import os; os.close(0), os.close(1), os.close(2)", 0),
        ("import os, shutil; shutil.rmtree(os.getcwd())", 0),
        ("import os; os.chdir('/')", 0),
        ("import os\nfor _ in range(1100):\n    os.mkdir('d')\n    os.chdir('d')", 0),
        ("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)", 0),
    ],
)
def test_an_end_is_told_as_it_was(source: str, code: int, namespaces: bool) -> None:
    left = play(program(source), namespaces=namespaces)
    assert (left.code, left.timed_out, left.problem) == (code, False, "")


@pytest.mark.core
@BOTH
def test_daemons_and_children_die_with_it(namespaces: bool) -> None:
    source = """
        import os, signal, time
        for number in range(4):
            if os.fork() == 0:
                for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(each, signal.SIG_IGN)
                if number:
                    os.setsid()
                if number > 1 and os.fork():
                    os._exit(0)
                if number > 2:
                    os.closerange(0, 100)
                time.sleep(1000)
        time.sleep(0.1)
    """
    assert play(program(source), namespaces=namespaces).code == 0


@BOTH
def test_an_agent_that_hangs_and_forks_is_ended_by_its_time_limit(namespaces: bool) -> None:
    source = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(6):
            os.fork()
        print("forked", flush=True)
        time.sleep(1000)
    """
    left = play(program(source), seconds=1.0, namespaces=namespaces)
    assert (left.timed_out, left.code, left.problem) == (True, -9, "")


@BOTH
def test_floods_of_output_are_read_and_their_end_is_kept(namespaces: bool) -> None:
    source = """
        import os
        for _ in range(200):
            os.write(1, b"x" * 1_000_000)
            os.write(2, b"y" * 10_000)
        os.write(1, b"end")
    """
    left = play(program(source), namespaces=namespaces)
    assert left.code == 0
    assert (left.stdout, left.stderr) == ("x" * (KEPT - 3) + "end", "y" * KEPT)


@BOTH
def test_a_daemon_that_floods_does_not_keep_it_open(namespaces: bool) -> None:
    source = """
        import os
        if os.fork() == 0:
            os.setsid()
            while True:
                os.write(1, b"flood")
    """
    assert play(program(source), namespaces=namespaces).code == 0


@BOTH
def test_a_program_that_cannot_be_started_is_a_problem(namespaces: bool, tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    left = play(f"cmd:{script}", namespaces=namespaces)
    assert (left.code, left.problem) == (None, f"'{script}' cannot be started: No such file or directory")


@BOTH
def test_a_killed_agent_is_handed_over(namespaces: bool) -> None:
    with played(program("print('on', flush=True); import time; time.sleep(1000)"), namespaces=namespaces) as agents:
        agents.start(5)
        agents.start(6)
        until(lambda: len(agents.running()) >= 2)
        agents.runner.kill(5)
        number, left = agents.end()
        assert (number, left.code, left.timed_out) == (5, -9, False)
        agents.runner.kill(5)  # it has ended
        agents.runner.kill(6)
        assert agents.end()[0] == 6


@BOTH
def test_a_killed_supervisor_is_a_problem_and_nothing_goes_on(namespaces: bool) -> None:
    source = """
        import os, time
        if os.fork() == 0:
            os.setsid()
        time.sleep(1000)
    """
    with played(program(source), namespaces=namespaces) as agents:
        agents.start()
        until(lambda: len(agents.running()) >= 2)
        for supervisor in _supervisors(agents):
            os.kill(supervisor, signal.SIGKILL)
        _, left = agents.end()
        assert (left.code, left.problem) == (None, "its supervisor was killed")
        until(lambda: agents.running() == [])


@BOTH
def test_a_killed_launcher_is_a_problem_and_the_next_episode_has_another(namespaces: bool) -> None:
    with played(program("import time, sys; time.sleep(1000 * len(sys.stdin.read()))"), namespaces=namespaces) as agents:
        agents.start()
        until(lambda: agents.running())
        os.kill(agents.runner._launcher.pid, signal.SIGKILL)
        assert agents.end()[1].problem == "its supervisor was killed"
        until(lambda: agents.running() == [])
        agents.start(1, replace(TASK, instruction=""))
        assert agents.end()[1].code == 0


@BOTH
def test_agents_die_with_the_process_that_runs_them(namespaces: bool, tmp_path: Path) -> None:
    source = f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
        import tempfile
        tempfile.tempdir = {str(tmp_path)!r}
        from played_agent import Played
        agents = Played("cmd:sleep 1000", 60, {namespaces})
        agents.start()
        agents.start(1)
        while len(agents.running()) < 2:
            time.sleep(0.01)
        print(agents.key, flush=True)
        time.sleep(1000)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        observer = Played.__new__(Played)
        observer.key = child.stdout.readline().strip()
        assert len(observer.running()) >= 2
        child.kill()
    until(lambda: observer.running() == [])
    until(lambda: not [*tmp_path.glob("grpo-agents-*")])


def test_what_runs_is_ended_when_the_runner_is_closed() -> None:
    with played("cmd:sleep 1000") as agents:
        agents.start()
        agents.start(1)
        until(lambda: len(agents.running()) >= 2)


def test_many_at_once_are_all_handed_over() -> None:
    with played(program("import sys; print(sys.stdin.read())")) as agents:
        for number in range(64):
            agents.start(number, replace(TASK, instruction=str(number)))
        ends = dict(agents.end() for _ in range(64))
    assert {number: left.stdout.strip() for number, left in ends.items()} == {n: str(n) for n in range(64)}


@BOTH
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("async def run(task, access):\n    return task.text", ("say hello", 0, "")),
        ("def run(task, access, *, n: int = 2):\n    return access.key[:4] * n", ("key-key-", 0, "")),
        ("def run(task, access):\n    return None", (None, 0, "")),
        ("def run(task, access):\n    raise SystemExit(4)", (None, 4, "")),
        ("def run(task, access):\n    raise ValueError('no')", (None, 1, "")),
        ("def run(task, access):\n    return 5", (None, 1, "it returned int, and is to return str or None.")),
        ("def run(task, access):\n    return 'x' * 3_000_000", (None, 0, "its answer has more than 1048576 bytes")),
        ("def run(task, access):\n    return '\\ud800!'", ("?!", 0, "")),
        (FORGED % "[]", (None, 0, "its answer cannot be read")),
        (FORGED % '{"answer": 1}', (None, 0, "its answer cannot be read")),
    ],
)
def test_python_agents_answer_with_what_they_return(
    body: str, expected: tuple[object, ...], namespaces: bool, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(body)
    left = play(f"python:{tmp_path}/mine.py:run", namespaces=namespaces)
    assert (left.answer, left.code, left.problem) == expected


@BOTH
def test_an_agent_reads_the_file_that_an_option_names(
    namespaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from pathlib import Path\ndef run(task, access, *, notes: Path):\n    return f'{notes}: {notes.read_text()}'\n"
    )
    Path("notes.txt").write_text("noted")
    left = play("python:mine.py:run:notes=notes.txt", namespaces=namespaces)
    assert (left.answer, left.stderr) == (f"{tmp_path}/notes.txt: noted", "")


def test_a_python_agent_is_imported_once_and_shares_nothing(tmp_path: Path) -> None:
    (tmp_path / "counting_neighbour.py").write_text("count = [0]")
    (tmp_path / "mine.py").write_text(
        "import os, counting_neighbour as neighbour\n"
        f"with open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('x')\n"
        "def run(task, access):\n    import sub\n    neighbour.count[0] += 1\n"
        "    return f'{neighbour.count[0]} {os.environ[\"OPENAI_API_KEY\"] == access.key} {sub.value}'\n"
    )
    (tmp_path / "sub.py").write_text("value = 'late'")
    with played(f"{tmp_path}/mine.py:run") as agents:
        before = (tmp_path / "imports").read_text()
        for number in range(3):
            agents.start(number)
        assert {agents.end()[1].answer for _ in range(3)} == {"1 True late"}
        assert (tmp_path / "imports").read_text() == before


@pytest.mark.parametrize("line", ["import nothing_of_that_name", "import sys; sys.exit(3)", "import os; os._exit(5)"])
def test_an_import_that_fails_is_told_before_anything_starts(line: str, tmp_path: Path) -> None:
    """The file itself is executed for its plugin first, so only what fails in the second process is seen by it."""
    (tmp_path / "mine.py").write_text(
        f"import __main__\nif 'pytest' not in __import__('sys').modules:\n    {line}\ndef run(task, access): ...\n"
    )
    with pytest.raises(UsageError, match="agent 'run'"):
        play(f"{tmp_path}/mine.py:run")


def _supervisors(agents: Played) -> list[int]:
    """Returns the children of the launcher."""
    launcher = str(agents.runner._launcher.pid)
    children = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if (folder / "stat").read_text().rpartition(")")[2].split()[1] == launcher:
                    children.append(int(folder.name))
            except OSError:
                continue
    return children

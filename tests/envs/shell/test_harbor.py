"""Tasks in Harbor's form: what is read of a folder, how a Dockerfile is followed, and what is refused."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grpo.core.check.gold.validate import validate
from grpo.envs.shell.harbor import folders_of, longest_tests, read_harbor_task
from grpo.envs.shell.panel import panel_of
from grpo.envs.shell.recipe import read_recipe
from grpo.envs.shell.task import AROUND, Machines, grade, open_machine, run
from grpo.plugins.errors import DatasetError
from grpo.plugins.host import Host
from grpo.plugins.pools import sessions_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
DOCKERFILE = """\
# syntax=docker/dockerfile:1
FROM ubuntu:24.04
ARG WHO=world
ENV GREETING="Hello, ${WHO}!" PLACE=/app
WORKDIR $PLACE
COPY --chmod=755 data/*.sh data/a.txt ./
COPY data /copy/
RUN mkdir -p out && \\
    echo base > out/base.txt
USER root
CMD ["bash"]
"""
TOML = """\
schema_version = "1.4"
[verifier]
timeout_sec = 30
environment_mode = "separate"
[agent]
timeout_sec = 30.0
[environment]
memory_mb = 512
"""
TEST = """\
mkdir -p /logs/verifier
[ "$(cat hello.txt)" = "Hello, world!" ] && [ -f out/base.txt ]
echo $((1 - $?)) > /logs/verifier/reward.txt
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "tasks" / "hello"
    texts = {
        "task.toml": TOML,
        "instruction.md": "Create hello.txt with a greeting.",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/run.sh": "#!/bin/sh\necho run\n",
        "environment/data/a.txt": "a\n",
        "tests/test.sh": TEST,
        "tests/data/expected.txt": "Hello, world!\n",
        "solution/solve.sh": 'echo "$GREETING" > hello.txt\n',
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_a_dockerfile_is_files_commands_and_variables(folder: Path) -> None:
    recipe = read_recipe(folder / "environment" / "Dockerfile")
    assert (recipe.image, recipe.plain, recipe.directory) == ("ubuntu:24.04", True, "/app")
    assert recipe.environment == {"GREETING": "Hello, world!", "PLACE": "/app"}
    assert {path: mode for path, (_, mode) in recipe.files.items() if path.startswith("/app")} == {
        "/app/run.sh": 0o755,
        "/app/a.txt": 0o755,
    }
    assert recipe.files["/copy/a.txt"][0] == b"a\n"
    (command,) = recipe.commands
    assert command.argv == ("/bin/sh", "-c", "mkdir -p out && echo base > out/base.txt")
    assert (command.directory, command.environment["WHO"]) == ("/app", "world")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("FROM a AS b\nFROM c", "line 2: a second FROM begins another stage"),
        ("FROM a\nCOPY --from=b x y", "line 2: COPY --from takes files of another image"),
        ("FROM a\nADD https://example.com/x y", "line 2: https://example.com/x would have to be loaded"),
        ("FROM a\nCOPY none.txt y", "line 2: there is no none.txt"),
        ("FROM a\nRUN <<EOF\nls\nEOF", "line 2: heredocs are not read"),
        ("FROM a\nONBUILD RUN ls", "line 2: ONBUILD is no instruction that a session can follow"),
        ("WORKDIR /a", "there is no FROM"),
    ],
)
def test_what_a_session_cannot_follow_is_refused_by_its_line(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "Dockerfile").write_text(line, encoding="utf-8")
    with pytest.raises(DatasetError, match=f"Dockerfile.*{problem}"):
        read_recipe(tmp_path / "Dockerfile")


def test_a_task_is_read_as_harbor_reads_it(folder: Path) -> None:
    task = read_harbor_task(folder, "local", "task")
    assert (task.name, task.instruction, task.directory) == ("hello", "Create hello.txt with a greeting.", "/app")
    assert (task.in_place, task.writes, task.image) == (False, True, "")
    assert task.limits.memory_bytes == 512 * 2**20
    assert task.grader.seconds == 30.0
    assert sorted(task.grader.files) == ["/tests/data/expected.txt", "/tests/test.sh"]
    assert read_harbor_task(folder, "docker", "task").image == "ubuntu:24.04"
    (folder / "task.toml").write_text(TOML.replace('environment_mode = "separate"', ""), encoding="utf-8")
    assert read_harbor_task(folder, "local", "task").in_place  # Harbor's default
    assert not read_harbor_task(folder, "local", "fresh").in_place


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("task.toml", "[", "is no TOML"),
        ("task.toml", "environment = 1", "'environment' must be a table"),
        ("task.toml", "[[steps]]\nname = 'a'", "tasks of one step are read"),
        ("task.toml", "[environment]\ngpus = 1", "environment.gpus is not given"),
        ("task.toml", "[environment]\nos = 'windows'", "sessions are Linux"),
        ("task.toml", "[environment.env]\nKEY = '${SECRET}'", "env.KEY is to be taken from this machine's variables"),
        ("task.toml", "[verifier]\ntimeout_sec = 'x'", "must be a number of seconds above 0"),
        ("environment/docker-compose.yaml", "services: {}", "a task has one machine here"),
        ("environment/Dockerfile", "FROM ghcr.io/us/tool:1", "the session 'local' has this machine's"),
        ("instruction.md", None, "cannot be read"),
        ("tests/test.sh", None, "It judges the task"),
    ],
)
def test_a_task_that_cannot_be_given_is_refused(folder: Path, name: str, text: str | None, problem: str) -> None:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(DatasetError, match=problem):
        read_harbor_task(folder, "local", "task")


def test_splits_are_folders_else_the_last_tasks_are_held_out(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.toml").touch()
    assert [path.name for path in folders_of(tmp_path, "train")] == ["a", "b"]
    assert [path.name for path in folders_of(tmp_path, "test")] == ["c"]
    for split, name in (("train", "x"), ("test", "y")):
        (tmp_path / split / name).mkdir(parents=True)
        (tmp_path / split / name / "task.toml").touch()
    assert [path.name for path in folders_of(tmp_path, "test")] == ["y"]
    (tmp_path / "none").mkdir()
    with pytest.raises(DatasetError, match="has no tasks"):
        folders_of(tmp_path / "none", "train")


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("mode", ["separate", pytest.param("shared", marks=pytest.mark.nightly)])
def test_the_solution_is_paid_and_nothing_else(folder: Path, mode: str) -> None:
    (folder / "task.toml").write_text(TOML.replace("separate", mode), encoding="utf-8")
    (folder.parent / "later").mkdir()
    for name in ("task.toml", "instruction.md"):
        (folder.parent / "later" / name).write_bytes((folder / name).read_bytes())
    (folder.parent / "later" / "tests").mkdir()
    (folder.parent / "later" / "tests" / "test.sh").write_text(TEST, encoding="utf-8")
    found = validate(f"harbor:{folder.parent}", size=1)
    assert found.ok
    assert not found.weak


@pytest.mark.slow
@LINUX
def test_a_machine_begins_with_what_its_commands_made(folder: Path, machines: Machines) -> None:
    task = read_harbor_task(folder, "local", "task")
    assert task.solution is not None
    for _ in range(2):
        machine = machines.open(task)
        assert machine.run(["cat", "out/base.txt"], directory="/app").stdout == b"base\n"
        assert machine.run(["./run.sh"], directory="/app").stdout == b"run\n"
        run(machine, task, task.solution)
        assert grade(machines, task, machine).reward == 1.0
        machine.close()


@pytest.mark.slow
@LINUX
def test_a_command_that_fails_here_is_told_with_its_output(folder: Path) -> None:
    (folder / "environment" / "Dockerfile").write_text("FROM debian\nRUN echo no network >&2; exit 3\n")
    task = read_harbor_task(folder, "local", "task")
    with pytest.raises(DatasetError, match=r"cannot be made here.*ended with status 3: no network"):
        open_machine(sessions_of(), task)


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /app; echo x > /app",
        "head -c 2G /dev/zero > /tmp/full; true",
        "mkdir 'a\nb'; ln -s /tests/data/expected.txt 'a\nb/c'; ln -s 'a\nb/c' hello.txt",
        "ln -s /tests/data/expected.txt hello.txt",
        "mkdir /opt/x; ln -s /opt/x x; ln -s /tests/data/expected.txt /opt/x/a; ln -s x/a hello.txt",
        "ln -s /tests/data/expected.txt hello.txt; chmod 555 .",
        "mkdir -p /logs/verifier; cd /logs/verifier; echo 1 > reward.txt; chmod 444 reward.txt; chmod 555 .",
        "mkdir -p /logs/verifier/reward.txt/x; chmod 0 /logs/verifier/reward.txt",
    ],
)
def test_an_episode_that_spoils_its_machine_for_the_tests_is_paid_nothing(
    folder: Path, command: str, machines: Machines
) -> None:
    (folder / "task.toml").write_text(TOML.replace("separate", "shared"), encoding="utf-8")
    task = read_harbor_task(folder, "local", "task")
    machine = machines.open(task)
    try:
        machine.run(["bash", "-c", command], directory="/app")
        assert grade(machines, task, machine).reward == 0.0
    finally:
        machine.close()


@pytest.mark.slow
@LINUX
def test_a_shell_in_the_place_of_the_systems_judges_nothing(folder: Path, machines: Machines) -> None:
    (folder / "task.toml").write_text(TOML.replace("separate", "shared"), encoding="utf-8")
    (folder / "tests" / "test.sh").write_text("/bin/sh -c 'exit 1'\necho $((1 - $?)) > /logs/verifier/reward.txt\n")
    task = read_harbor_task(folder, "local", "task")
    machine = machines.open(task)
    try:
        machine.run(
            ["bash", "-c", "mv /bin /own; mkdir /bin; printf '#!/own/bash\nexit 0\n' > /bin/sh; chmod 755 /bin/sh"]
        )
        assert grade(machines, task, machine).reward == 0.0
    finally:
        machine.close()


@pytest.mark.slow
@LINUX
def test_tasks_of_one_name_have_machines_of_their_own(folder: Path, machines: Machines) -> None:
    task = read_harbor_task(folder, "local", "task")
    other = replace(task, commands=[(("sh", "-c", "mkdir out; echo other > out/base.txt"), "/app")])
    for one, text in ((task, b"base\n"), (other, b"other\n"), (task, b"base\n")):
        machine = machines.open(one)
        assert machine.read("/app/out/base.txt") == text
        machine.close()


@pytest.mark.slow
@LINUX
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_tests_that_call_git_where_the_policy_was_are_found(folder: Path, machines: Machines) -> None:
    commits = "git init -q && git config user.email a@b && git config user.name a && git add -A && git commit -qm base"
    (folder / "environment" / "Dockerfile").write_text(f"FROM debian\nWORKDIR /app\nRUN touch in.txt && {commits}\n")
    test = 'git status --short > /tmp/changes\n[ "$(cat hello.txt)" = "Hello, world!" ]\n'
    (folder / "tests" / "test.sh").write_text(f"{test}echo $((1 - $?)) > /logs/verifier/reward.txt\n")
    (folder / "solution" / "solve.sh").write_text("echo 'Hello, world!' > hello.txt\n")
    found = panel_of(read_harbor_task(folder, "local", "task"), machines)
    assert found.gold == 1.0
    assert "an agent that has git run a program of its own when the tests call git is paid 1" in found.sentences()


def test_an_answer_in_the_history_of_git_is_found(folder: Path, machines: Machines) -> None:
    commits = "git init -q && git config user.email a@b && git config user.name a && echo 1 > hello.txt && git add -A"
    commits += " && git commit -qm base && echo 'Hello, world!' > hello.txt && git commit -qam fix"
    dockerfile = (
        f"FROM debian\nENV GREETING='Hello, world!'\nWORKDIR /app\nRUN {commits} && git reset -q --hard HEAD~1\n"
    )
    (folder / "environment" / "Dockerfile").write_text(f"{dockerfile}RUN mkdir out && touch out/base.txt\n")
    found = panel_of(read_harbor_task(folder, "local", "task"), machines)
    assert found.gold == 1.0
    assert "an agent that takes the files of the newest other commit that git has is paid 1" in found.sentences()


def test_a_run_waits_as_long_as_tests_may_take(folder: Path) -> None:
    assert longest_tests(folder.parent) == 30.0
    bound = Host.discover().env(f"harbor:{folder.parent}")
    assert bound.call_limit(60.0) == 30.0 + AROUND

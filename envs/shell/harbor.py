"""Reads a task in Harbor's form: a folder with task.toml, instruction.md, environment/, tests/ and solution/.

Field names and defaults are those of Harbor 0.26 (schema 1.4). What a session cannot give is refused by its name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo.envs.datasets.files import held_out
from grpo.envs.shell.recipe import Recipe, read_recipe
from grpo.envs.shell.task import LIFE, Script, SessionTask, assignments
from grpo.plugins.errors import DatasetError
from grpo.plugins.session import SessionLimits

_TEST_SECONDS = 600.0
_MEGABYTE = 2**20


def folders_of(folder: Path, split: str) -> Sequence[Path]:
    """Returns a split's task folders by name; without train and test, the last are held out. Raises DatasetError."""
    named = {name: folder / name for name in ("train", "test") if (folder / name).is_dir()}
    place = named.get(split, folder) if len(named) == 2 else folder
    tasks = sorted(path.parent for path in place.glob("*/task.toml"))
    if not tasks and (place / "task.toml").is_file():
        return [place]
    if not tasks:
        raise DatasetError(f"{place} has no tasks: a task is a folder with task.toml and instruction.md.")
    return tasks if place != folder else held_out(tasks, split, str(folder))


def longest_tests(folder: Path) -> float:
    """Returns the most seconds that the tests of a task in a folder may take. Raises DatasetError."""
    files = sorted(folder.rglob("task.toml"))
    tables = [(_table(_settings(path), "verifier", path.parent), path.parent) for path in files]
    return max((_seconds(verifier, _TEST_SECONDS, task) for verifier, task in tables), default=_TEST_SECONDS)


def read_harbor_task(folder: Path, session: str, grading: str, *, builds: bool = False) -> SessionTask:
    """Returns the task of a folder.

    `session`: the SPEC of the session; one named local follows the Dockerfile. `builds`: the session builds the image.
    `grading`: "fresh", "in_place", or "task" for what task.toml says. Raises DatasetError: a file is missing or wrong,
    or the task wants what the session cannot give.
    """
    settings = _settings(folder / "task.toml")
    machine, verifier, agent = (_table(settings, name, folder) for name in ("environment", "verifier", "agent"))
    _refuse_unknown(settings, machine, folder)
    image = str(machine.get("docker_image") or "")
    recipe = Recipe(image=image)
    dockerfile = folder / "environment" / "Dockerfile"
    local = session.partition(":")[0] == "local"
    if dockerfile.is_file() and builds and not image:
        recipe = Recipe(image=str(dockerfile.parent.absolute()))
    elif dockerfile.is_file() and (local or not image):
        recipe = read_recipe(dockerfile)
    if local and not recipe.plain and recipe.image:
        raise DatasetError(
            f"{folder}: its machine begins with '{recipe.image}', which has programs of its own, and the session "
            "'local' has this machine's. A session with images can make this task."
        )
    mode = verifier.get("environment_mode") or ("separate" if "environment" in verifier else "shared")
    tests = {f"/tests/{name}": content for name, content in _files(folder / "tests").items()}
    if "/tests/test.sh" not in tests:
        raise DatasetError(f"{folder}/tests/test.sh is missing. It judges the task and writes the reward.")
    solution = {f"/solution/{name}": content for name, content in _files(folder / "solution").items()}
    return SessionTask(
        name=folder.name,
        instruction=_text(folder / "instruction.md"),
        grader=Script(
            ("bash", "/tests/test.sh"), tests, _variables(verifier, folder), _seconds(verifier, _TEST_SECONDS, folder)
        ),
        solution=Script(
            ("bash", "/solution/solve.sh"),
            solution,
            _variables(_table(settings, "solution", folder), folder),
            _seconds(agent, _TEST_SECONDS, folder),
        )
        if "/solution/solve.sh" in solution
        else None,
        files=recipe.files,
        commands=[
            (("env", *assignments(command.environment), *command.argv), command.directory)
            for command in recipe.commands
        ],
        directory=str(machine.get("workdir") or (recipe.directory if recipe.directory != "/" else "")),
        environment={**recipe.environment, **_variables(machine, folder)},
        image="" if local else recipe.image,
        limits=_limits(machine),
        writes=True,
        in_place=grading == "in_place" or (grading == "task" and mode == "shared"),
    )


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DatasetError(f"{path} is no TOML: {error}.") from None


def _table(settings: Mapping[str, Any], name: str, folder: Path) -> Mapping[str, Any]:
    table = settings.get(name) or {}
    if not isinstance(table, Mapping):
        raise DatasetError(f"{folder}/task.toml: '{name}' must be a table, [{name}].")
    return table


def _refuse_unknown(settings: Mapping[str, Any], machine: Mapping[str, Any], folder: Path) -> None:
    """Refuses settings that change a task and are not followed here."""
    if settings.get("steps"):
        raise DatasetError(f"{folder}/task.toml has steps; tasks of one step are read.")
    for name in ("gpus", "tpu", "mcp_servers"):
        if machine.get(name):
            raise DatasetError(f"{folder}/task.toml: environment.{name} is not given to a session here.")
    if str(machine.get("os", "linux")).lower() != "linux":
        raise DatasetError(f"{folder}/task.toml: environment.os={machine['os']}; sessions are Linux.")
    compose = folder / "environment" / "docker-compose.yaml"
    if compose.is_file():
        raise DatasetError(f"{compose}: a task has one machine here. Put what it needs into the Dockerfile.")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from None


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode & 0o777) for path in paths}


def _variables(table: Mapping[str, Any], folder: Path) -> dict[str, str]:
    given = table.get("env") or {}
    if not isinstance(given, Mapping):
        raise DatasetError(f"{folder}/task.toml: 'env' must be a table of texts.")
    asked = [name for name, value in given.items() if "${" in str(value)]
    if asked:
        raise DatasetError(
            f"{folder}/task.toml: env.{asked[0]} is to be taken from this machine's variables, which a session does "
            "not see. Write the value."
        )
    return {str(name): str(value) for name, value in given.items()}


def _seconds(table: Mapping[str, Any], default: float, folder: Path) -> float:
    value = table.get("timeout_sec", default)
    if not isinstance(value, int | float) or not value > 0:
        raise DatasetError(f"{folder}/task.toml: timeout_sec={value!r} must be a number of seconds above 0.")
    return float(value)


def _limits(machine: Mapping[str, Any]) -> SessionLimits:
    limits = SessionLimits()
    memory, disk = machine.get("memory_mb"), machine.get("storage_mb")
    return SessionLimits(
        memory_bytes=int(memory) * _MEGABYTE if memory else limits.memory_bytes,
        disk_bytes=min(int(disk) * _MEGABYTE, limits.disk_bytes) if disk else limits.disk_bytes,
        seconds=LIFE,
    )

"""Reads a Dockerfile as files and commands, so that a session without images can follow it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from grpo.plugins.errors import DatasetError

_PLAIN = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:ubuntu|debian|python|alpine|bash|buildpack-deps|busybox)(?:[:@].*)?"
)
_IGNORED = ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "USER", "VOLUME")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Command:
    """A `RUN` of a Dockerfile."""

    argv: tuple[str, ...]  # the program and its arguments
    directory: str  # where it runs
    environment: Mapping[str, str]  # its variables


@dataclass(slots=True)
class Recipe:
    """What makes the machine of a task."""

    image: str = ""  # what it begins with
    # absolute path to content and mode; they are there before the first command runs
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)  # what is run then, in order
    directory: str = "/"  # the working directory of the agent
    environment: dict[str, str] = field(default_factory=dict)  # variables of every program

    @property
    def plain(self) -> bool:
        """True where the image is a system or a Python alone, whose programs most machines have."""
        return _PLAIN.fullmatch(self.image) is not None


def read_recipe(dockerfile: Path) -> Recipe:
    """Returns what a Dockerfile says; its folder is the build context. Raises DatasetError, which names the line."""
    recipe, shell, given = Recipe(), ("/bin/sh", "-c"), dict[str, str]()
    for line, name, rest in _instructions(dockerfile):
        try:
            text = rest if name in ("RUN", "SHELL") else _expanded(rest, {**given, **recipe.environment})
            if name == "FROM":
                if recipe.image:
                    raise _Unknown("a second FROM begins another stage")
                recipe.image = text.split()[0]
            elif name == "ARG":
                key, _, value = text.partition("=")
                given[key.strip()] = value.strip("'\"")
            elif name == "ENV":
                recipe.environment.update(_pairs(text))
            elif name == "WORKDIR":
                recipe.directory = str(PurePosixPath(recipe.directory) / text)
            elif name == "SHELL":
                shell = tuple(json.loads(rest))
            elif name in ("COPY", "ADD"):
                recipe.files.update(_copied(text, dockerfile.parent, recipe.directory))
            elif name == "RUN":
                argv = tuple(json.loads(rest)) if rest.startswith("[") else (*shell, rest)
                recipe.commands.append(Command(argv, recipe.directory, {**given, **recipe.environment}))
            elif name not in _IGNORED:
                raise _Unknown(f"{name} is no instruction that a session can follow")
        except (ValueError, _Unknown) as error:
            raise DatasetError(
                f"{dockerfile}, line {line}: {error}. A session with images can make this task."
            ) from None
    if not recipe.image:
        raise DatasetError(f"{dockerfile}: there is no FROM. Begin it with the image of the task.")
    return recipe


class _Unknown(Exception):
    """An instruction has a form that is not followed."""


def _instructions(dockerfile: Path) -> Iterator[tuple[int, str, str]]:
    """Yields the line number, name and rest of each instruction. Raises DatasetError: unreadable, or a heredoc."""
    try:
        lines = dockerfile.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{dockerfile} cannot be read: {error}. Write it as text in UTF-8.") from None
    begun, parts = 0, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        text = line.strip()
        if text.startswith("#") or (not text and not parts):
            continue
        begun = begun or number
        parts.append(text.removesuffix("\\").rstrip())
        if text.endswith("\\"):
            continue
        name, _, rest = " ".join(parts).partition(" ")
        if "<<" in rest and name.upper() in ("RUN", "COPY", "ADD"):
            raise DatasetError(
                f"{dockerfile}, line {begun}: heredocs are not read. Put the text into a file of its own."
            )
        yield begun, name.upper(), rest.strip()
        begun, parts = 0, []


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda part: variables.get(part[1] or part[3], part[2] or ""), text)


def _pairs(text: str) -> dict[str, str]:
    """The variables of an ENV: `A=1 B="2 3"`, or the old `A 1`."""
    if "=" not in text.split(maxsplit=1)[0]:
        key, _, value = text.partition(" ")
        return {key: value.strip()}
    return dict(part.split("=", 1) for part in shlex.split(text))


def _copied(text: str, context: Path, directory: str) -> dict[str, tuple[bytes, int]]:
    """The files that a COPY brings, by their absolute paths."""
    flags, paths = list[str](), json.loads(text) if text.startswith("[") else shlex.split(text)
    while paths and paths[0].startswith("--"):
        flags.append(paths.pop(0))
    if any(flag.startswith("--from") for flag in flags):
        raise _Unknown("COPY --from takes files of another image")
    *sources, target = paths
    modes = [int(flag.partition("=")[2], 8) for flag in flags if flag.startswith("--chmod=")]
    into = str(PurePosixPath(directory) / target)
    copied: dict[str, tuple[bytes, int]] = {}
    for source in sources:
        if "://" in source:
            raise _Unknown(f"{source} would have to be loaded")
        matches = sorted(context.glob(source.lstrip("/"))) if source not in (".", "./", "/") else [context]
        if not matches:
            raise _Unknown(f"there is no {source} in {context}")
        for match in matches:
            if match.is_dir():
                pairs = [(path, f"{into}/{path.relative_to(match).as_posix()}") for path in sorted(match.rglob("*"))]
            else:
                many = target.endswith(("/", ".")) or len(sources) > 1 or len(matches) > 1
                pairs = [(match, f"{into}/{match.name}" if many else into)]
            for path, place in pairs:
                if path.is_file() and not path.is_symlink():
                    mode = modes[-1] if modes else path.stat().st_mode & 0o777
                    copied[str(PurePosixPath(place))] = (path.read_bytes(), mode)
    return copied

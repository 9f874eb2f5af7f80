"""Makes new plugin packages from those in examples/, under new names."""

from __future__ import annotations

import builtins
import datetime
import keyword
import re
from pathlib import Path

import grpo
from grpo.core.record.run_dir import whole_folder
from grpo.plugins.contract import CONTRACT
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import Kind

EXAMPLES = Path(__file__).parent / "examples"  # a link in a checkout, a folder in a wheel
EXAMPLE: dict[Kind, str] = {
    "reward": "stated_number",
    "verifier": "stated_answer",
    "env": "small_sums",
    "sandbox": "second_try",
    "session": "logged",
    "sampler": "oldest_first",
    "loss": "clipped_ratio",
    "advantage": "leave_one_out",
    "agent": "one_command",
}
_COMMON = ("LICENSE", ".gitignore", ".github/workflows/tests.yml")  # of every package; the reward's example has them
_KEPT = ("pyproject.toml", "README.md", "src/*/*", "tests/*.py")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_LONGEST = 30
_TAKEN = {
    *("reward", "verifier", "env", "sandbox", "sampler", "case", "verdict", "hookimpl", "grpo", "re", "random"),
    *("rows", "environment", "asyncio", "shaky"),
    *("session", "inner", "job", "argv", "path", "time", "commands"),
    *("loss", "advantage", "tokens", "scores", "torch"),
    *("agent", "task", "access", "json", "subprocess", "urllib", "messages"),
}


def package_files(kind: Kind, name: str) -> dict[str, str]:
    """Returns the files of a new package, path to text; UsageError for a name that Python cannot have."""
    identifier = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError(
            f"'{name}' cannot name a package. Use up to {_LONGEST} lower-case letters, digits and '-', beginning with "
            "a letter."
        )
    if keyword.iskeyword(identifier) or hasattr(builtins, identifier) or identifier in _TAKEN:
        raise UsageError(f"'{name}' means something else in Python or in the new file. Choose another name.")
    sources: tuple[tuple[Kind, tuple[str, ...]], ...] = (("reward", _COMMON), (kind, _KEPT))
    return {
        _renamed(path, source, kind, identifier): _renamed(text, source, kind, identifier)
        for source, patterns in sources
        for path, text in _texts(source, patterns).items()
    }


def distribution_of(kind: Kind, name: str) -> str:
    return f"grpo-{kind}-{name.replace('_', '-')}"


def write_package(folder: Path, files: dict[str, str]) -> None:
    """Writes the files into a new folder, whole or not at all. Raises UsageError: it is there, or cannot be written."""
    if folder.exists():
        raise UsageError(f"{folder} is there already. Choose another name, or another place with --dir.")
    try:
        with whole_folder(folder) as unfinished:
            for path, text in files.items():
                (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
                (unfinished / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}. Choose another place with --dir.") from error


def _texts(kind: Kind, patterns: tuple[str, ...]) -> dict[str, str]:
    folder = EXAMPLES / distribution_of(kind, EXAMPLE[kind])
    files = [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()]
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files if file.suffix != ".pyc"
    }


def _renamed(text: str, source: Kind, kind: Kind, name: str) -> str:
    major, minor = grpo.__version__.split(".")[:2]
    year = datetime.datetime.now(datetime.UTC).year
    example, distribution = distribution_of(source, EXAMPLE[source]), distribution_of(kind, name)
    text = text.replace(example, distribution).replace(example.replace("-", "_"), distribution.replace("-", "_"))
    text = text.replace(f"{source}:{EXAMPLE[source]}", f"{kind}:{name}").replace(EXAMPLE[source], name)
    text = re.sub(r"grpo-kit>=[\d.]+", f"grpo-kit>={major}.{minor}", text)
    text = re.sub(r"(?m)^grpo_contract = \d+$", f"grpo_contract = {CONTRACT}", text)
    return re.sub(r"Copyright \(c\) \d{4}", f"Copyright (c) {year}", text)

"""A new plugin package: a kind and a name in, the files of a pip package that installs and passes its own tests out."""

from __future__ import annotations

import builtins
import datetime
import keyword
import re
from pathlib import Path
from string import Template

import grpo
from grpo.core.scaffold import sources, texts, training
from grpo.plugins.contract import CONTRACT
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import Kind

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_LONGEST = 30
_TAKEN = {
    *("reward", "verifier", "env", "sandbox", "sampler", "case", "verdict", "hookimpl", "grpo", "re", "random"),
    *("rows", "environment", "asyncio", "shaky"),
    *("loss", "advantage", "tokens", "scores", "torch"),
}


def package_files(kind: Kind, name: str) -> dict[str, str]:
    """Returns the files of a new package, path to text.

    Args:
        kind: what it offers.
        name: the plugin's name, lower case, for example "brevity" or "my-reward".

    Raises:
        UsageError: the name cannot be a Python name or would hide one.
    """
    identifier = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError(
            f"'{name}' cannot name a package. Use up to {_LONGEST} lower-case letters, digits and '-', beginning with "
            "a letter."
        )
    if keyword.iskeyword(identifier) or hasattr(builtins, identifier) or identifier in _TAKEN:
        raise UsageError(f"'{name}' means something else in Python or in the new file. Choose another name.")
    distribution = distribution_of(kind, name)
    major, minor = grpo.__version__.split(".")[:2]
    package = distribution.replace("-", "_")
    fields = {
        "name": identifier,
        "distribution": distribution,
        "package": package,
        "kind": kind,
        "grpo": f"grpo-kit>={major}.{minor}",
        "contract": str(CONTRACT),
        "year": str(datetime.datetime.now(datetime.UTC).year),
    }
    fields["use"] = Template(texts.USES[kind]).substitute(fields)
    templates = {
        "pyproject.toml": texts.PYPROJECT,
        "README.md": texts.README,
        "LICENSE": texts.LICENSE,
        ".gitignore": texts.GITIGNORE,
        ".github/workflows/tests.yml": texts.CONTINUOUS_INTEGRATION,
        f"src/{package}/py.typed": "",
        **_sources(kind, package, identifier),
    }
    return {path: Template(text).substitute(fields) for path, text in templates.items()}


def distribution_of(kind: Kind, name: str) -> str:
    """Returns the name of the distribution."""
    return f"grpo-{kind}-{name.replace('_', '-')}"


def write_package(folder: Path, files: dict[str, str]) -> None:
    """Writes the files into a new folder.

    Raises:
        UsageError: the folder is there already, or cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{folder} is there already. Choose another name, or another place with --dir.") from None
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}. Choose another place with --dir.") from error


def _sources(kind: Kind, package: str, name: str) -> dict[str, str]:
    module, test = f"src/{package}/__init__.py", f"tests/test_{name}.py"
    if kind == "reward":
        return {module: sources.REWARD, test: sources.REWARD_TEST}
    if kind == "sandbox":
        return {module: sources.SANDBOX, test: sources.SANDBOX_TEST}
    if kind == "sampler":
        return {module: sources.SAMPLER, test: sources.SAMPLER_TEST}
    if kind == "loss":
        return {module: training.LOSS, test: training.LOSS_TEST}
    if kind == "advantage":
        return {module: training.ADVANTAGE, test: training.ADVANTAGE_TEST}
    if kind == "verifier":
        return {module: sources.VERIFIER, test: sources.VERIFIER_TEST}
    return {
        module: sources.ENV,
        f"src/{package}/environment.py": sources.ENVIRONMENT,
        test: sources.ENV_TEST,
    }

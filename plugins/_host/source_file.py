"""Loads a plugin from a file that belongs to no installed package: `./mine.py:score`, or a rubric, `./rubric.toml`.

The file's folder is appended to `sys.path`, so that it hides nothing installed. Equal content is executed once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from grpo.plugins._host.loading import GIVEN, Registration
from grpo.plugins._host.python_objects import reward_of, verifier_of, written_sha256
from grpo.plugins._host.rubric_file import rubric_from_file
from grpo.plugins._spec.signature import returns_verdict, written_function
from grpo.plugins._spec.soundness import SPEC_OF_KIND, spec_fault
from grpo.plugins._spec.spec_text import SpecText
from grpo.plugins.agent_decorator import agent_of
from grpo.plugins.error_lines import one_line
from grpo.plugins.errors import AmbiguousName, PluginNotFound, SpecError, UsageError, did_you_mean, plural, with_article
from grpo.plugins.from_trl import is_trl_function
from grpo.plugins.specs import AgentSpec, Kind, RewardSpec, VerifierSpec

_PLAIN_FORM: dict[Kind, str] = {
    "reward": " or has a first parameter named completion",
    "verifier": " or has a first parameter named completion and returns a Verdict",
    "agent": " or takes (task, access)",
}


def registration_from_file(kind: Kind, text: SpecText) -> Registration:
    """Returns the file's spec of that kind by variable or name. Raises PluginNotFound, UsageError."""
    path_text, function = text.path, text.name
    path = Path(path_text).expanduser()
    if path.is_dir():
        raise PluginNotFound(f"'{path_text}' is a folder. Name a file in it: ./file.py:function or ./rubric.toml.")
    if not path.is_file():
        form = "./rubric.toml" if path.suffix == ".toml" else "./file.py:function"
        raise PluginNotFound(f"no file '{path_text}' (looked in {path.absolute().parent}). Write {form}.")
    path = path.resolve()
    if path.suffix == ".toml":
        if kind != "reward":
            raise PluginNotFound(f"no {kind} in {path_text}: a TOML file describes a rubric, which is a reward.")
        return Registration(kind, rubric_from_file(path), str(path), "", path.name)
    module = module_from_file(path)
    values = vars(module)
    declared = [name for name, value in values.items() if isinstance(value, SPEC_OF_KIND[kind])]
    plain = [name for name, value in values.items() if _kind_of_plain(value, module) == kind]
    plain = [name for name in plain if _is_own(values[name], module)] or plain  # what is imported is to be used
    trl = [name for name in plain if is_trl_function(values[name])]
    offered = list(dict.fromkeys([*declared, *plain]))
    function = function or _only(kind, path_text, [*declared, *trl] or plain)
    named = [value for value in values.values() if isinstance(value, SPEC_OF_KIND[kind])]
    spec = values.get(function) or next((value for value in named if value.name == function), None)
    if kind in ("reward", "verifier", "agent") and _is_plain(spec):
        spec = _spec_of_plain(kind, spec, f"{path_text}:{function}", function)
    if spec is None:
        raise PluginNotFound(
            f"no {kind} '{function}' in {path_text}.{did_you_mean(function, offered)} "
            f"The file offers: {', '.join(offered) or f'no {plural(kind)}'}."
        )
    fault = spec_fault(kind, spec)
    if fault:
        more = f" (one that is registered with gymnasium is gym:{path_text}:ID)" if kind == "env" else ""
        raise UsageError(f"{path_text}:{function} is not {with_article(kind)}: {fault}{more}.")
    if text.version not in (None, spec.version):
        raise PluginNotFound(
            f"no {kind} '{function}' of version {text.version} in {path_text}: the file has version {spec.version}. "
            f"Write {path_text}:{function}@{spec.version} to accept it."
        )
    return Registration(kind, spec, str(path), "", function)


def declared_in_file(kind: Kind, text: SpecText) -> Registration | None:
    """Returns what a file declares under a name, or None; raises what `registration_from_file` raises."""
    values = vars(module_from_file(Path(text.path)))
    declared = {name: value for name, value in values.items() if isinstance(value, SPEC_OF_KIND[kind])}
    names = {*declared, *(value.name for value in declared.values())}
    return registration_from_file(kind, text) if text.name in names else None


def _is_own(value: Callable[..., Any], module: ModuleType) -> bool:
    return getattr(written_function(value), "__module__", None) == module.__name__


def _is_plain(value: object) -> TypeGuard[Callable[..., Any]]:
    return callable(value) and not inspect.isclass(value) and not isinstance(value, tuple(SPEC_OF_KIND.values()))


def _spec_of_plain(
    kind: Kind, function: Callable[..., Any], where: str, name: str
) -> RewardSpec | VerifierSpec | AgentSpec:
    try:
        if kind == "agent":
            return agent_of(function, name=name)
        if kind == "verifier":
            return verifier_of(function, name=name)
        if returns_verdict(function):
            raise UsageError(
                f"{where} is a verifier: it returns a Verdict, and a reward a number. Name it with --verifier, or "
                f"check it as verifier:{where}."
            )
        return reward_of(function, name=name)
    except SpecError as error:
        raise UsageError(f"{where} is not {with_article(kind)}: {error}") from error


def _kind_of_plain(value: object, module: ModuleType) -> Kind | None:
    """Returns what a file offers a plain function as, or None.

    In TRL's manner it is a reward; in this file, with `completion` first, a verifier where it returns a Verdict, else a
    reward; with `task` and `access`, an agent.
    """
    if not _is_plain(value):
        return None
    if is_trl_function(value):
        return "reward"
    if not _is_own(value, module):
        return None
    try:
        names = [*inspect.signature(value).parameters]
    except (TypeError, ValueError):
        return None
    if names[:2] == ["task", "access"]:
        return "agent"
    return None if names[:1] != ["completion"] else "verifier" if returns_verdict(value) else "reward"


def _only(kind: Kind, path: str, offered: Sequence[str]) -> str:
    if len(offered) == 1:
        return offered[0]
    if not offered:
        raise PluginNotFound(
            f"{path} offers no {kind}: no function in it is decorated with @{kind}()"
            f"{_PLAIN_FORM.get(kind, '')}. Write one, then give "
            f"{path}:function."
        )
    raise AmbiguousName(
        f"{path} offers {len(offered)} {plural(kind)}: {', '.join(offered)}. Name one, as in {path}:{offered[0]}"
    )


def module_from_file(path: Path) -> ModuleType:
    """Executes a Python file, once for the same content, and returns it as a module. Raises UsageError."""
    content = path.read_bytes()
    identity = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()[:12]
    name = f"grpo_file_{path.stem}_{identity}"
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise UsageError(f"{path} cannot be loaded as Python. Give the file a name that ends in .py.")
    module = importlib.util.module_from_spec(module_spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):
            # Not by a loader: it takes bytecode of an earlier content with the same length and second of change.
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException as error:  # the file may also call sys.exit()
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(f"{path} cannot be executed: {one_line(error).rstrip('.')}. {_remedy(path, error)}") from error
    return module


def _remedy(path: Path, error: BaseException) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "A file is in no package: import its neighbours by their bare names, as in `import neighbour`."
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        for folder in (Path.cwd(), *path.parents[:-1]):
            if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
                searched = f"'{top}' is in {folder}, and only {path.parent} is searched"
                return f"{searched}. Set PYTHONPATH={shlex.quote(str(folder))}"
        return f"Install '{top}', or the package that has it, for {sys.executable}."
    if isinstance(error, SystemExit):
        return "Put what it does as a program below `if __name__ == '__main__':`, since its plugins are imported."
    return f"Try: python {path}"


def source_sha256(function: object) -> str | None:
    """Returns the SHA-256 of the file that defines it, in a script or notebook of its own source, or None."""
    target = inspect.unwrap(function) if callable(function) else function
    while hasattr(target, "func"):
        target = inspect.unwrap(target.func)
    module = sys.modules.get(getattr(target, "__module__", None) or type(target).__module__)
    if module is not None and module.__name__ == GIVEN:
        return written_sha256(target)
    try:
        file = None if module is None else inspect.getsourcefile(module)
    except TypeError:
        return None
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()

"""Starts any command line as an agent: `cmd:python agent.py --model {model} {instruction}`."""

from __future__ import annotations

import os
import re

from grpo.plugins.agents import Access, AgentTask, Command, search_path
from grpo.plugins.errors import UsageError, did_you_mean
from grpo.plugins.specs import AgentSpec, Option

_PLACES = ("instruction", "url", "key", "model")
_PLACE = re.compile(rf"\{{({'|'.join(_PLACES)})\}}")
_WRITTEN = re.compile(r"\{([^\W\d]\w*)\}")
_SCRIPT = re.compile(r"[\w./-]+\.(?:py|sh|bash|js|mjs|cjs|ts|rb|pl|php|lua)")
_PROGRAM = re.compile(r"""[\s()'"$]""")


def _start(task: AgentTask, access: Access, *, line: str) -> Command:
    values = {"instruction": task.text, "url": access.url, "key": access.key, "model": access.model}
    argv = [_PLACE.sub(lambda match: values[match[1]], part) for part in _parts(line)]
    return Command(argv, stdin="" if "{instruction}" in line else task.text)


def _refuse(*, line: str) -> None:
    import shutil

    parts = _parts(line)
    if not parts:
        raise UsageError("agent 'cmd' has an empty line. Write cmd:PROGRAM ARGUMENTS, as in cmd:python agent.py.")
    if shutil.which(parts[0], path=search_path()) is None:
        if len(parts) == 1 and line.strip()[0] in "'\"" and " " in parts[0].strip():
            raise UsageError(
                f"agent 'cmd:{line}': in quotes the whole line is the name of one program. Leave those around the line "
                f"out: cmd:{line.strip()[1:-1]}"
            )
        if "/" not in parts[0] and os.access(parts[0], os.X_OK):
            raise UsageError(
                f"agent 'cmd:{line}': {parts[0]} is a file of this folder, and not on the PATH. Write ./{parts[0]}"
            )
        if os.path.isfile(parts[0]):  # noqa: PTH113 - whatever the text, it raises nothing
            raise UsageError(
                f"agent 'cmd:{line}': the file {parts[0]} may not be executed. Make it executable (chmod +x), or name "
                "the program that runs it, as in cmd:bash FILE."
            )
        where = f"no program '{parts[0]}' is on the PATH" if "/" not in parts[0] else f"no program is at {parts[0]}"
        raise UsageError(f"agent 'cmd:{line}': {where}. Install it, or correct the line.")
    if name := next(filter(None, map(_unknown, parts)), ""):
        close = did_you_mean(f"{{{name}}}", [f"{{{place}}}" for place in _PLACES])
        known = " There are {instruction}, {url}, {key} and {model}."
        raise UsageError(f"agent 'cmd:{line}': unknown placeholder {{{name}}}.{close or known}")


def missing_script(line: str) -> str:
    """Returns a warning of a script that the line names and that is no file here; "" without one."""
    import shlex

    try:
        named = [part for part in shlex.split(line)[1:] if _SCRIPT.fullmatch(part)]
    except ValueError:
        return ""
    for name in named:
        folder, script = os.path.split(name)
        if not os.path.isfile(name):  # noqa: PTH113 - whatever the text, it raises nothing
            here = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []  # noqa: PTH208, PTH112
            return (
                f"agent 'cmd:{line}': there is no file {name} here.{did_you_mean(script, here)} A task that does not "
                "bring it will fail."
            )
    return ""


def _unknown(argument: str) -> str:
    """Returns the first unknown placeholder, or ""; among a program's braces only a misspelt {instruction} counts."""
    for name in _WRITTEN.findall(argument):
        if name not in _PLACES and (not _PROGRAM.search(argument) or did_you_mean(name, _PLACES[:1])):
            return str(name)
    return ""


def _parts(line: str) -> list[str]:
    """Splits a line; paths of files become absolute, for agents start elsewhere. UsageError: unmatched quotes."""
    import shlex

    try:
        parts = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"agent 'cmd:{line}' cannot be split into arguments: {error}.") from error
    return [_absolute(part, program=not at) for at, part in enumerate(parts)]


def _absolute(part: str, program: bool) -> str:
    is_path = "/" in part if program else os.path.isfile(part)  # noqa: PTH113 - whatever the text, it raises nothing
    return os.path.abspath(part) if is_path else part  # noqa: PTH100


cmd = AgentSpec(
    name="cmd",
    version=1,
    function=_start,
    doc="""Starts a command line: cmd:PROGRAM ARGUMENTS.

The line is split as a shell does, and no shell runs it. Within an argument, {instruction}, {url}, {key} and {model}
stand for the task, the gateway's address, the episode's key and the policy's name. A line without {instruction} gets
the task on its standard input. An argument that names a file is made absolute, for the program starts in the working
directory of its episode.""",
    options=(Option("line", str),),
    protocols=("chat", "responses", "messages"),
    prepare=_refuse,
)

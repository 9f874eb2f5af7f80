"""The public surface: every public name with its parameters and attributes, held to what public_api.txt records.

The sources are read without running them. What has gone or changed raises the contract's number (`CONTRACT` in
`grpo.plugins.contract`). `make public-api` records anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

import grpo
from grpo.plugins.contract import CONTRACT

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).resolve().parent / "public_api.txt"
AGAIN = "make public-api"
_PARAMETER = re.compile(r"(?P<owner>[\w.]+)\((?P<parameter>.+)\)")


def public_lines() -> list[str]:
    """Returns the surface, a line for every name, base, attribute, parameter, hook and allowed word."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src"], allow_inspection=False)
    package = loader.load("grpo")
    assert isinstance(package, griffe.Module)
    loader.resolve_aliases()
    lines = [line for name in grpo.__all__ for line in _described(name, package[name])]
    plugins = package["plugins"].modules.values()
    for module in plugins:
        for name, function in module.functions.items():
            if any(str(decorator.value) == "hookspec" for decorator in function.decorators):
                lines += _called(f"hook {name}", function.parameters, function.returns)
    told = set(re.findall(r"\w+", "\n".join(lines)))
    for module in plugins:
        for name, attribute in module.attributes.items():
            if name in told and str(attribute.value).startswith("Literal["):
                lines += [f"word {name} {word}" for word in re.findall(r"'[^']*'", str(attribute.value))]
    return sorted({f"contract {CONTRACT}", *lines})


def _described(name: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    target = found.final_target if isinstance(found, griffe.Alias) else found
    if isinstance(target, griffe.Function):
        yield from _called(name, target.parameters, target.returns)
    elif isinstance(target, griffe.Class):
        bases = [base for base in map(str, target.bases) if not base.startswith("_")]
        yield f"{name} is a class{''.join(f', {base}' for base in bases)}"
        yield from _called(name, target.parameters, None)
        for member, held in target.all_members.items():
            if not member.startswith("_") or member == "__call__":
                yield from _member(f"{name}.{member}", held)
    elif isinstance(target, griffe.Attribute):
        yield f"{name} = {target.value}"


def _member(name: str, held: griffe.Object | griffe.Alias) -> Iterator[str]:
    target = held.final_target if isinstance(held, griffe.Alias) else held
    if isinstance(target, griffe.Function):
        yield from _called(name, target.parameters, target.returns)
    elif isinstance(target, griffe.Attribute):
        yield f"{name}: {target.annotation}"


def _called(name: str, parameters: griffe.Parameters, returns: object) -> Iterator[str]:
    """Yields a line for what comes back, and one for each parameter; those that may stand by position have a number."""
    if returns is not None:
        yield f"{name} -> {returns}"
    given = [parameter for parameter in parameters if parameter.name not in ("self", "cls")]
    for number, parameter in enumerate(given, start=1):
        kind = parameter.kind or griffe.ParameterKind.positional_or_keyword
        place = "" if kind is griffe.ParameterKind.keyword_only else f"{number} "
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        default = "" if parameter.default is None or stars else f" = {parameter.default}"
        yield f"{name}({place}{stars}{parameter.name}: {parameter.annotation}{default})"


def broken_lines(before: list[str], now: list[str]) -> list[str]:
    """Returns what code that was written for the surface before cannot rely on any more.

    That is each line that is gone or altered, and each new parameter that an old callable needs.
    """
    gone = [f"gone or changed: {line}" for line in before if line not in now]
    callables = {match["owner"] for match in map(_PARAMETER.fullmatch, before) if match}
    needed = [
        f"needed now: {line}"
        for line in now
        if line not in before
        and (match := _PARAMETER.fullmatch(line))
        and match["owner"] in callables
        and " = " not in line
        and "*" not in match["parameter"]
    ]
    return gone + needed


def recorded() -> tuple[str, list[str]]:
    """Returns the record's first line, its contract, and the others."""
    contract, *lines = RECORD.read_text(encoding="utf-8").splitlines()
    return contract, lines


def record(unreleased: bool) -> None:
    """Writes the record anew.

    Args:
        unreleased: what goes or changes was in no release yet, so the contract keeps its number.

    Raises:
        SystemExit: something goes or changes, and the contract has not been raised.
    """
    contract, *now = _with_contract_first(public_lines())
    before = recorded() if RECORD.exists() else ("", [])
    broken = broken_lines(before[1], now)
    if broken and before[0] == contract and not unreleased:
        raise SystemExit(
            "\n".join(broken) + f"\nRaise CONTRACT in plugins/contract.py, and record with: {AGAIN}\n"
            f"If none of it was in a release yet: {AGAIN} ARGS=--unreleased"
        )
    RECORD.write_text("\n".join([contract, *now]) + "\n", encoding="utf-8")
    print(f"{len(now)} lines of {contract} are recorded in {RECORD.relative_to(ROOT)}")


def _with_contract_first(lines: list[str]) -> list[str]:
    return sorted(lines, key=lambda line: (not line.startswith("contract "), line))


@pytest.mark.slow
def test_what_plugins_rely_on_is_what_the_record_says() -> None:
    contract, *now = _with_contract_first(public_lines())
    stated, before = recorded()
    broken = broken_lines(before, now)
    assert stated == contract, f"the record is of {stated}, and this is {contract}. Record it with: {AGAIN}"
    assert not broken, "\n".join([*broken, f"Raise CONTRACT in plugins/contract.py, and record with: {AGAIN}"])
    new = [f"new: {line}" for line in now if line not in before]
    assert not new, "\n".join([*new, f"What is new is held from now on. Record it with: {AGAIN}"])


@pytest.mark.parametrize(
    ("before", "now", "broken"),
    [
        (["f(1 a: int)", "f(b: int = 1)"], ["f(1 a: int)", "f(b: int = 1)", "f(c: int = 2)"], []),
        (["f(1 a: int)"], ["f(1 a: str)"], ["gone or changed: f(1 a: int)", "needed now: f(1 a: str)"]),
        (["f(1 a: int)"], ["f(1 a: int)", "f(b: int)"], ["needed now: f(b: int)"]),
        (["f(1 a: int)"], ["f(1 a: int)", "g(1 b: int)"], []),
        (["f(1 a: int)", "f -> int"], ["f -> int"], ["gone or changed: f(1 a: int)"]),
        (["word Isolation 'inline'"], [], ["gone or changed: word Isolation 'inline'"]),
    ],
)
def test_what_goes_or_is_needed_breaks_and_what_is_added_does_not(
    before: list[str], now: list[str], broken: list[str]
) -> None:
    assert broken_lines(before, now) == broken


if __name__ == "__main__":
    record(unreleased="--unreleased" in sys.argv[1:])

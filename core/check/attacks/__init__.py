"""Holds hostile programs that every sandbox must contain, in files beside this one. Run them in a sandbox only."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from grpo.plugins.sandbox_job import JobOutcome, Limits

BREACH = b"BREACH"
QUICK = Limits(cpu_seconds=0.4, wall_seconds=3.0)
SEVERAL = Limits(cpu_seconds=0.5, wall_seconds=3.0, processes=8)
ENDED: tuple[JobOutcome, ...] = ("exited", "signalled", "policy", "memory", "compile_error")
"""How a program may end that was refused something and gave up."""

_LONG = Limits(cpu_seconds=1.0, wall_seconds=10.0)


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program."""

    name: str  # what it tries
    program: str  # its Python source
    outcomes: tuple[JobOutcome, ...] = ENDED  # how it may end
    limits: Limits = field(default=QUICK)  # what it runs under
    then: str = ""  # a program for the next job, which prints `BREACH` when it finds what the attack left behind
    needs: str = ""  # a capability of the pool without which the attack is not tried, or ""


def tried(setup: str, *expressions: str, end: str = "print('tried')") -> str:
    """Returns a program that evaluates each expression by itself and prints `BREACH` for those that work."""
    lines = [setup, "def attempt(text):", "    try:", "        got = eval(text)", "    except BaseException:"]
    lines += ["        return", "    print('BREACH', text, repr(got)[:80])"]
    return "\n".join([*lines, *(f"attempt({text!r})" for text in expressions), end])


def all_attacks() -> tuple[Attack, ...]:
    """Returns every attack, in the order in which they are tried."""
    setup, calls = kernel_calls()
    beside = table_of("kernel_calls")["several"]
    return (
        *attacks_in("resources"),
        # What TOML cannot hold, or would make long.
        Attack("surrogates in a program", "x = '\ud800'", ("compile_error",)),
        Attack("200,000 parentheses", "(" * 200_000 + ")" * 200_000, ("compile_error", "signalled", "memory"), _LONG),
        Attack("a program of 12 MB", "x = 1\n" * 2_000_000, (*ENDED, "time_cpu"), _LONG),
        *attacks_in("access"),
        *(Attack(f"call: {name}", tried(setup, text)) for name, text in calls.items()),
        *(Attack(f"call: {n}, where processes are allowed", tried(setup, calls[n]), limits=SEVERAL) for n in beside),
        *attacks_in("kernel_calls"),
    )


def kernel_calls() -> tuple[str, Mapping[str, str]]:
    """Returns what defines `call`, and the calls of the kernel that no program needs, by name."""
    table = table_of("kernel_calls")
    return table["setup"], table["calls"]


def attacks_in(name: str) -> Iterator[Attack]:
    """Yields the attacks of a file; one that names another under `several` is tried with several processes, too."""
    table = table_of(name)
    known = {"several": SEVERAL, **{limits: Limits(**given) for limits, given in table.get("limits", {}).items()}}
    for given in table["attacks"]:
        program = given.get("program")
        if program is None:
            program = tried(given["setup"], *given["attempts"], **({"end": given["end"]} if "end" in given else {}))
        limits = given.get("limits")
        attack = Attack(
            given["name"],
            program,
            tuple(given.get("outcomes", ENDED)),
            Limits(**limits) if isinstance(limits, dict) else known.get(limits, QUICK),
            given.get("then", ""),
            given.get("needs", ""),
        )
        yield attack
        if "several" in given:
            yield Attack(given["several"], program, attack.outcomes, SEVERAL)


@cache
def table_of(name: str) -> dict[str, Any]:
    """Returns what a file beside this one holds."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))

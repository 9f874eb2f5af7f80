"""Holds hostile programs that every sandbox must contain. Run them in a sandbox only: they do what they say."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpo.plugins.sandbox_job import JobOutcome, Limits

BREACH = b"BREACH"
QUICK = Limits(cpu_seconds=0.4, wall_seconds=3.0)
SEVERAL = Limits(cpu_seconds=0.5, wall_seconds=3.0, processes=8)
ENDED: tuple[JobOutcome, ...] = ("exited", "signalled", "policy", "memory", "compile_error")
"""How a program may end that was refused something and gave up."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program."""

    name: str  # what it tries
    program: str  # its Python source
    outcomes: tuple[JobOutcome, ...] = ENDED  # how it may end
    limits: Limits = field(default=QUICK)  # what it runs under
    then: str = ""  # a program for the next job, which prints `BREACH` when it finds what the attack left behind
    needs: str = ""  # a capability of the pool without which the attack is not tried, or ""


def tried(setup: str, *expressions: str) -> str:
    """Returns a program that evaluates each expression by itself and prints `BREACH` for those that work."""
    lines = [setup, "def attempt(text):", "    try:", "        got = eval(text)", "    except BaseException:"]
    lines += ["        return", "    print('BREACH', text, repr(got)[:80])"]
    return "\n".join([*lines, *(f"attempt({text!r})" for text in expressions), "print('tried')"])


def all_attacks() -> tuple[Attack, ...]:
    """Returns every attack, in the order in which they are tried."""
    from grpo.core.check.attacks.access import ACCESS
    from grpo.core.check.attacks.kernel_calls import KERNEL_CALLS
    from grpo.core.check.attacks.resources import RESOURCES

    return (*RESOURCES, *ACCESS, *KERNEL_CALLS)

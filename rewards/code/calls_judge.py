"""Judges a solution by its answers to calls that are known beforehand: all asked in one sandbox, compared here.

It decides about programs to which nothing happens. One that ends or is late, and an answer that cannot be compared here
or asks for more than a second of processor time, is left to the tests (`tests_judge`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from grpo.plugins.sandbox_job import SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.guest.calling import Other, has_nan
from grpo.rewards.code.guest.loading import line_of
from grpo.rewards.code.guest.plain import decode, encode
from grpo.rewards.code.guest_program import guest_job
from grpo.rewards.code.known_calls import FUNCTIONS, KnownUnit
from grpo.rewards.code.results import CodeResult, UnitResult, all_failed, failed_loading
from grpo.rewards.code.tests_plan import Plan

_QUICK = 1.0  # seconds
_TIMES, _MORE = 8, 4096  # an answer that is longer than so many times the test may be made to be slow to read
_COMPACT = (b'["r", ', b'["D", ', b'["F", ')  # ranges and numbers that are larger than they look
_SETS = (b'["s", ', b'["z", ')


async def judge_known_calls(pool: SandboxPool, program: str, plan: Plan, allowance: Allowance) -> CodeResult | None:
    """Judges a solution by the known calls of a plan; returns None where the tests have to."""
    seconds = min(_QUICK, allowance.seconds)
    quick = replace(allowance, seconds=seconds)
    calls = [
        [function, args[1:], {name: encode(value) for name, value in decode(named).items()}, at == 0]
        for unit in plan.known
        for at, (function, args, named) in enumerate(unit.calls)
    ]
    orders = {"program": program, "seconds": seconds, "setup": plan.setup, "names": plan.names, "calls": calls}
    profile = "pytest" if "pytest" in program else "python"
    [result] = await pool.run([guest_job(pool, "served", orders, limits=quick.limits(), profile=profile)])
    if result.outcome != "exited" or result.exit_code != 0:
        return None
    loaded, *answers = result.stdout.splitlines() or [b""]
    try:
        state, *why = json.loads(loaded)
        if state == "failed" and not plan.setup:
            return all_failed(failed_loading(str(why[0])), plan.units, result.degraded)
        if len(answers) != len(calls):
            return None
        following = iter(answers)
        space: dict[str, Any] = {**FUNCTIONS, "__builtins__": {}}
        tests = [_judged(unit, [next(following) for _ in unit.calls], plan, space) for unit in plan.known]
    except Exception:  # whatever the program wrote or made to be compared
        return None
    judged = CodeResult(tuple(tests), plan.units, degraded=result.degraded)
    return judged.until_failure() if allowance.stop else judged


def _judged(unit: KnownUnit, lines: list[bytes], plan: Plan, space: dict[str, Any]) -> UnitResult:
    """Returns how a unit ended, from the answers to its calls; in `space` are the names of the units before.

    Raises:
        ValueError, Malformed: that cannot be said here.
    """
    left_out = (*_COMPACT, *_SETS) if any(each.ordering for each in plan.known) else _COMPACT
    if any(len(line) > _TIMES * unit.size + _MORE or any(tag in line for tag in left_out) for line in lines):
        raise ValueError("an answer that may take long to look at, or is looked at in no certain order")
    answers = list(map(json.loads, lines))
    first: dict[str, Any] = {}
    if any(first.setdefault(repr(call), answer) != answer for call, answer in zip(unit.calls, answers, strict=True)):
        raise ValueError("equal calls with different answers")
    others = [str(name)[:200] for kind, name, *_ in answers if kind == "other"]
    values = [decode(each[1]) if each[0] == "value" else Other(each[2] is True) for each in answers]
    if plan.numbers and any(map(has_nan, values)):
        return UnitResult("wrong_answer", "the answer is not a number")

    def answer(place: int) -> Any:
        if answers[place][0] == "raised":
            raise _Raised(str(answers[place][3]))
        return values[place]

    def raised(place: int, name: str) -> bool:
        kind, kinds, *_ = answers[place]
        if kind == "raised" and "NameError" in kinds and name != "NameError":
            answer(place)  # such a program is wrong, whatever the tests expect
        return kind == "raised" and name in kinds

    try:
        space.update({"__answer__": answer, "__raised__": raised})
        exec(unit.check, space)
    except _Raised as error:
        return UnitResult("runtime_error", str(error))
    except (AssertionError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, NameError) as error:
        why = "another value than expected" if isinstance(error, AssertionError) else line_of(error)
        return UnitResult("wrong_answer", f"the answer is {others[0]}, and no plain data" if others else why)
    return UnitResult("accepted")


class _Raised(Exception):
    """A call raised something."""

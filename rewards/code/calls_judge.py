"""Judges a solution by its answers to calls that are known beforehand: all asked in one sandbox, compared here.

It decides about programs to which nothing happens. One that ends or is late, and an answer that cannot be compared here
or asks for more than a second of processor time, is left to the tests (`tests_judge`).
"""

from __future__ import annotations

import json
from dataclasses import replace

from grpo.plugins.sandbox_job import SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.guest.plain import decode, encode
from grpo.rewards.code.guest_program import guest_job
from grpo.rewards.code.known_calls import KnownCall
from grpo.rewards.code.results import CodeResult, UnitResult, all_failed, failed_loading
from grpo.rewards.code.tests_plan import Plan

_QUICK = 1.0  # seconds
_TIMES, _MORE = 8, 4096  # an answer that is longer than so many times what is expected may be made to be slow to read


async def judge_known_calls(pool: SandboxPool, program: str, plan: Plan, allowance: Allowance) -> CodeResult | None:
    """Judges a solution by the known calls of a plan; returns None where the tests have to."""
    seconds = min(_QUICK, allowance.seconds)
    quick = replace(allowance, seconds=seconds)
    calls = [
        [call.function, call.args[1:], {name: encode(value) for name, value in decode(call.named).items()}, at == 0]
        for unit in plan.known
        for at, call in enumerate(unit)
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
        tests = [_unit([_answer(call, next(following)) for call in unit]) for unit in plan.known]
    except Exception:  # whatever the program wrote or made to be compared
        return None
    judged = CodeResult(tuple(tests), plan.units, degraded=result.degraded)
    return judged.until_failure() if allowance.stop else judged


def _answer(call: KnownCall, line: bytes) -> UnitResult:
    """Returns how a call ended.

    Raises:
        ValueError, Malformed: that cannot be said here.
    """
    if len(line) > _TIMES * len(json.dumps(call.expected)) + _MORE:
        raise ValueError("a long answer")
    kind, *parts, _ = json.loads(line)
    if kind == "value":
        right = call.holds(parts[0])
        return UnitResult("accepted") if right else UnitResult("wrong_answer", "another value than expected")
    if kind == "raised":
        return UnitResult("runtime_error", str(parts[2]))
    if call.truth:
        raise ValueError("the truth of an object")
    return UnitResult("wrong_answer", f"the answer is {str(parts[0])[:200]}, and no plain data")


def _unit(calls: list[UnitResult]) -> UnitResult:
    """Returns how a unit ended, from how its calls did."""
    return next((call for call in calls if not call.passed), calls[0])

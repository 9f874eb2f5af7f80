"""Generates calculations of five levels, each with a worked solution."""

from __future__ import annotations

from typing import Any

from grpo.envs.datasets.draws import Draws

LEVELS = (1, 2, 3, 4, 5)


def draw_problem(draws: Draws, level: int) -> dict[str, Any]:
    """Returns a row with `question`, `answer`, `solution` (a line for each step, then `#### 12`) and `level`.

    No result is negative. `Arithmetic` describes the levels.
    """
    text, steps = _LEVELS[level](draws)
    answer = steps[-1].rpartition(" ")[2]
    solution = "\n".join([*steps, f"#### {answer}"])
    return {"question": f"What is {text}?", "answer": answer, "solution": solution, "level": level}


def _step(left: int, sign: str, right: int) -> tuple[str, int]:
    value = left + right if sign == "+" else left - right if sign == "-" else left * right
    return f"{left} {sign} {right} = {value}", value


def _single(left: int, sign: str, right: int) -> tuple[str, list[str]]:
    return f"{left} {sign} {right}", [_step(left, sign, right)[0]]


def _digits(draws: Draws) -> tuple[str, list[str]]:
    return _single(draws.whole(1, 9), "+", draws.whole(1, 9))


def _sum(draws: Draws, most: int) -> tuple[str, list[str]]:
    left, right = draws.whole(2, most), draws.whole(2, most)
    if draws.whole(0, 1):
        return _single(left, "+", right)
    return _single(max(left, right), "-", min(left, right))


def _product_or_sum(draws: Draws) -> tuple[str, list[str]]:
    if draws.whole(0, 1):
        return _single(draws.whole(2, 12), "*", draws.whole(2, 12))
    return _sum(draws, 999)


def _two_steps(draws: Draws) -> tuple[str, list[str]]:
    first, product = _step(draws.whole(2, 12), "*", draws.whole(2, 12))
    text = first.partition(" = ")[0]
    sign = draws.pick("+-")
    other = draws.whole(2, 99 if sign == "+" else product)
    second, _ = _step(product, sign, other)
    return f"{text} {sign} {other}", [first, second]


def _three_steps(draws: Draws) -> tuple[str, list[str]]:
    left, right = draws.whole(2, 30), draws.whole(2, 30)
    if draws.whole(0, 1):
        first, inner = _step(left, "+", right)
    else:
        first, inner = _step(max(left, right), "-", min(left, right))
    factor = draws.whole(2, 9)
    second, product = _step(inner, "*", factor)
    other = draws.whole(2, 99)
    third, _ = _step(product, "+", other)
    return f"({first.partition(' = ')[0]}) * {factor} + {other}", [first, second, third]


_LEVELS = {1: _digits, 2: lambda draws: _sum(draws, 99), 3: _product_or_sum, 4: _two_steps, 5: _three_steps}

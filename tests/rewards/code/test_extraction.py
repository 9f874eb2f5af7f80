"""Which text of a completion is the program."""

from typing import Any

import pytest
from patience import little_work

from grpo.rewards.code.extraction import defines, fenced_blocks, program_of
from grpo.rewards.code.program_parts import without_tail

F = "def f():\n    return 1\n"


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        (f"```python\n{F}```", F),
        (f"```py\n{F}```\nDone.", F),
        (f"```Python3\n{F}```", F),
        (f"```\n{F}```", F),
        (f"~~~python\n{F}~~~", F),
        (f"````python\n{F}````", F),
        (f"text\n  ```python\n{F}    ```\n    ", F),
        (f"```{{.python}}\n{F}```", F),
        (f"```python title=a.py\n{F}```", F),
        (f"First:\n```python\nx = 1\n```\nthen\n```python\n{F}```", F),
        (f"```python\n{F}```\nOutput:\n```\n1\n```\n", F),
        (f"```python\n{F}```\nRun it:\n```bash\npython f.py\n```", F),
        (f"```python\n{F}```\n```text\n1\n```", F),
        (f"```python\n{F}", F),
        (f"```python\n{F.rstrip()}```", F.rstrip()),
        (f"```python\n{F}    ```\nDone.", F),
        (f"So: ```python\n{F}```", F),
        ("- a\n\n  ```python\n  def f():\n      return 1\n  ```", F),
        ('```python\n"""\n    ```\n    f()\n    ```\n"""\n```', '"""\n    ```\n    f()\n    ```\n"""\n'),
        (F, F),
        ("    return 1\n", "    return 1\n"),
        (f"<think>```python\nx = 2\n```</think>\n```python\n{F}```", F),
        (f"<think>I could write x.</think>\n{F}", "\n" + F),
        (f"```python\n{F}```<|im_end|>", F),
        (f"{F}<|endoftext|>\n</s>", F),
        ("```python def f(): return 1```", "def f(): return 1"),
        ("`f = lambda: 1`", "f = lambda: 1"),
        (f"[PYTHON]\n{F}[/PYTHON]\n[TESTS]\nassert f()\n[/TESTS]", F),
        (f"[BEGIN]\n{F}[DONE]", F),
        (f"<reasoning>\nhm\n</reasoning>\n<answer>\n{F}</answer>", F.strip("\n")),
        (f"```python\r\n{F}```".replace("\n", "\r\n").replace("\r\r", "\r"), F),
        ("```cpp\nint main() {}\n```", None),
        ("```python\n```", None),
        ("", None),
        (" \n\t", None),
        ("<think>only thought</think>", None),
    ],
)
def test_the_last_block_of_python_is_the_program_and_without_a_fence_the_text(completion: str, program: str) -> None:
    assert program_of(completion) == program


@pytest.mark.parametrize(
    ("completion", "wanted", "program"),
    [
        (f"{F}```", ("f",), F),
        (f"{F}```\n\nThis gives 1.", ("f",), F),
        (f"python\n{F}```", ("f",), F),
        (f"{F}```\nExample:\n```python\nprint(f())\n```", ("f",), F),
        ("    return 1\n```\nOutput:\n```\n1\n```", ("f",), "    return 1\n"),
        ("print(input())\n```\n\nExample:\n\n```python\nprint(1)\n```", (), "print(input())\n"),
        (f"{F}\nprint(f(", ("f",), F + "\n"),
        (f"{F}\ndef g(x):\n    return x -", ("f",), F + "\n"),
        (f"{F}\nHuman: and now two", ("f",), F + "\n"),
        ("    return 1\n\nif __name__ == '__main__':\n    print(f(", ("f",), "    return 1\n\n"),
        (
            "def f():\n    return g()\n\ndef g():\n    return 1\n",
            ("f",),
            "def f():\n    return g()\n\ndef g():\n    return 1\n",
        ),
        (f"{F}f = cache(f)\nfrom functools import cache\n", ("f",), f"{F}f = cache(f)\nfrom functools import cache\n"),
        (f"def helper():\n    pass\n{F}", ("f",), f"def helper():\n    pass\n{F}"),
        ("print(1)\nprint(2)\n", (), "print(1)\nprint(2)\n"),
        ("print(input())\n```", ("",), "print(input())\n"),
        (f"Output:\n```\n7\n```\n```python\n{F}```", ("f",), F),
    ],
)
def test_what_runs_on_behind_a_program_is_cut_off(completion: str, wanted: tuple[str, ...], program: str) -> None:
    assert program_of(completion, *wanted) == program


def test_the_last_block_that_defines_the_entry_point_wins() -> None:
    text = f"```python\nbad = 1\n```\n```python\n{F}```\nFor example:\n```python\nprint(f())\n```"
    assert program_of(text, "f") == F
    usage = program_of(text, "g")
    assert usage == program_of(text)
    assert usage.endswith("\nprint(f())\n")
    twice = f"```python\n{F}```\nBetter:\n```python\nf = lambda: 2\n```"
    assert program_of(twice, "f") == "f = lambda: 2\n"


def test_a_fence_in_a_longer_fence_is_text() -> None:
    assert list(fenced_blocks("````md\n```python\nx\n```\n````")) == [("md", "```python\nx\n```\n")]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("def f(x): ...", True),
        ("async def f(): ...", True),
        ("class f: ...", True),
        ("f = lambda: 1", True),
        ("f: int = 1", True),
        ("f == 1", False),
        ("def ff(): ...", False),
        ("    def f(): ...", False),
        ("# def f", False),
    ],
)
def test_a_definition_stands_at_the_beginning_of_a_line(program: str, found: bool) -> None:
    assert defines(program, "f") is found


@pytest.mark.parametrize("piece", ["```", "```\n", "~~~\n`", "<answer>", "</think>", "def f", "\n", " ", "`"])
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    with little_work(piece):
        program_of(piece * (1_000_000 // len(piece)), "f")


def test_blocks_that_define_what_the_program_uses_go_with_it() -> None:
    steps = [
        "import math\nclass Odd(Exception): pass\n",
        "def part(x):\n    return Odd\n",
        "def f():\n    return part(1)\n",
    ]
    spread = "\n".join(f"```python\n{step}```" for step in steps)
    program = program_of(f"{spread}\n```python\nprint(f())\n```", "f")
    space: dict[str, Any] = {}
    exec(program, space)
    assert space["f"]().__name__ == "Odd"
    assert program.endswith(steps[2])


@pytest.mark.parametrize(
    "other",
    [
        "def f():\n    return 2\n",
        "n = int(input())\ndef part(): return n\n",
        "total = 3\n",
        "import math\n",
        "def sum(x): return 0\n",
    ],
)
def test_a_block_that_is_complete_stays_alone(other: str) -> None:
    chosen = "def f():\n    total = math.pi\n    return sum([total])\n"
    chosen += "    return part()\n" if "part" in other else ""
    assert program_of(f"```python\n{other}```\nBetter:\n```python\n{chosen}```", "f") == chosen


@pytest.mark.parametrize(
    ("program", "rest"),
    [
        ("memo = {}\ndef f(n):\n    return memo[n]\nfor i in range(5):\n    memo[i] = i\n", "print(f(3))\n"),
        ("import sys\ndef f(n):\n    return n\nsys.setrecursionlimit(9000)\n", "This returns n of sys.\n"),
        ("def f(n):\n    return n\nf.cache = {}\nf.register(1)\n", "if __name__ == '__main__':\n    f(3)\n"),
        ("@once\ndef f(n):\n    return n\n@f.register\ndef _(n: int):\n    return 2\n", "def g("),
        ("def f(n):\n    return n\n", "@cache\ndef g(n):\n    return f(n)\nassert f(1) == 1\n"),
    ],
)
def test_what_a_program_does_behind_its_function_stays_and_what_runs_on_does_not(program: str, rest: str) -> None:
    assert without_tail(program + rest, ("f",)) == program

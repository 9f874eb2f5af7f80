"""The Python files of a new plugin package, by kind, as `string.Template`s: working examples to be rewritten.

The fields are those of core/scaffold/texts.py.
"""

REWARD = '''\
"""The reward $name: a completion and the gold in, a score out.

Keep the imports light: every grpo command that lists plugins makes them. A reward that compares the completions of a
prompt with each other declares scope="group", and takes and returns lists.
"""

from __future__ import annotations

import re

from grpo import Case, RewardSpec, hookimpl, reward

grpo_contract = $contract
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:[.][0-9]+)?")
_MARK = re.compile("<answer>|<SOLUTION>|####")
_WORKING = re.compile(r"[0-9][0-9\\s.,$$()+*/-]*(?:=|\\bis\\b)")  # "6 * 12 =" states no answer
_READ = 400


@reward(
    version=1,
    range=(0.0, 1.0),
    cases=[
        Case("6 * 12 = <<6*12=72>>72\\n#### 72", row={"answer": "6 * 12 = <<6*12=72>>72\\n#### 72"}, expect=1.0),
        Case("<reasoning>\\n6 * 12\\n</reasoning>\\n<answer>\\n72\\n</answer>\\n", row={"answer": "72"}, expect=1.0),
        Case("6 * 12 = 72, so the answer is 72.", row={"answer": "72"}, expect=1.0),
        Case("The answer is $$1,200.00.", row={"answer": "1200"}, expect=1.0),
        Case("The answer is 73.", row={"answer": "72"}, expect=0.0),
        Case("The answer is 72 or 71.", row={"answer": "72"}, expect=0.0),
        Case("I do not know.", row={"answer": "72"}, expect=0.0),
        Case("The answer is 72.", row={"answer": "unknown"}, expect=None),
    ],
)
def $name(completion: str, answer: str, *, tolerance: float = 0.0) -> float | None:
    """1 when the answer of a completion states the gold number and no other, else 0.

    The answer is what follows a mark ("<answer>", "<SOLUTION>", "####"), or else the last line. Abstains when the gold
    is not a number.

    Args:
        completion: the text that is scored.
        answer: the gold: a number, or a worked solution that ends in "#### 72".
        tolerance: how far the number may be off.
    """
    gold = _NUMBER.fullmatch(str(answer).rpartition("####")[2].strip())
    if gold is None:
        return None
    text = completion.strip()[-_READ:]
    stated = _MARK.split(text)[1:] or text.splitlines()[-1:]
    numbers = {_value(found) for found in _NUMBER.findall(_WORKING.sub("", " ".join(stated)))}
    return 1.0 if len(numbers) == 1 and abs(numbers.pop() - _value(gold[0])) <= tolerance else 0.0


def _value(text: str) -> float:
    return float(text.replace(",", ""))


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers the reward to grpo."""
    return [$name]
'''

REWARD_TEST = '''\
"""The reward keeps every relation that an honest score keeps."""

from __future__ import annotations

from grpo import Host, check_reward

from $package import $name


def test_the_score_can_be_trusted() -> None:
    report = check_reward($name)
    assert report.ok, str(report)


def test_a_right_answer_pays_in_every_layout_that_gsm8k_asks_for() -> None:
    working = "48 / 2 = <<48/2=24>>24 clips in May.\\n48 + 24 = <<48+24=72>>72 clips."
    for completion in (
        f"{working}\\n#### 72",
        f"<reasoning>\\n{working}\\n</reasoning>\\n<answer>\\n72\\n</answer>\\n",
        f"<start_working_out>{working}<end_working_out><SOLUTION>72</SOLUTION>",
        f"<think>\\n{working}\\n</think>\\n72",
    ):
        assert $name(completion, "72") == $name(completion, f"{working}\\n#### 72") == 1.0


def test_a_tolerance_lets_near_answers_pass() -> None:
    assert $name("The answer is 71.", "72", tolerance=1.0) == 1.0
    assert $name("The answer is 70.", "72", tolerance=1.0) == 0.0


def test_grpo_finds_it() -> None:
    assert Host.discover().reward("$distribution/$name@1").spec is $name
'''

VERIFIER = '''\
"""The verifier $name: a completion and the gold in, a verdict out.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

from grpo import Case, Verdict, VerifierSpec, hookimpl, verifier

grpo_contract = $contract


@verifier(
    version=1,
    cases=[
        Case("It is the largest.\\nAnswer: Jupiter", row={"answer": "Jupiter"}, expect=True),
        Case("Answer: jupiter.", row={"answer": "Jupiter"}, expect=True),
        Case("Answer: Saturn", row={"answer": "Jupiter"}, expect=False),
        Case("Answer: Saturn or Jupiter", row={"answer": "Jupiter"}, expect=False),
        Case("I do not know.", row={"answer": "Jupiter"}, expect=False),
        Case("Answer: Jupiter", row={"answer": ""}, expect=None),
    ],
)
def $name(completion: str, answer: str) -> Verdict:
    """Judges whether the text after the last "Answer:" is the gold answer; case and a final full stop do not count.

    Args:
        completion: the text that is judged.
        answer: the gold answer.
    """
    gold = _plain(str(answer or ""))
    if not gold:
        return Verdict(None, reason="the row has no gold answer")
    _, marked, stated = completion.rpartition("Answer:")
    if not marked:
        return Verdict(False, reason="there is no answer in the completion")
    return Verdict(_plain(stated) == gold, extracted=stated.strip()[:200], reason=f"expected {gold}")


def _plain(text: str) -> str:
    return text.strip().removesuffix(".").strip().casefold()


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers the verifier to grpo."""
    return [$name]
'''

VERIFIER_TEST = '''\
"""The verifier accepts right answers and nothing else."""

from __future__ import annotations

from grpo import Host, check_verifier

from $package import $name


def test_the_verdict_can_be_trusted() -> None:
    report = check_verifier($name)
    assert report.ok, str(report)


def test_grpo_finds_it() -> None:
    assert Host.discover().verifier("$distribution/$name@1").spec is $name
'''

ENV = '''\
"""The environment $name with its reward and its verifier.

Keep the imports light: every grpo command that lists plugins makes them. Gymnasium waits in `environment`.
"""

from __future__ import annotations

import random
from typing import Any

from grpo import Case, EnvSpec, RewardSpec, Verdict, VerifierSpec, env, hookimpl, reward, verifier

grpo_contract = $contract
_CASES = (("42", True), ("41", False), ("", False))


@verifier(version=1, cases=[Case(text, row={"answer": "42"}, expect=right) for text, right in _CASES])
def ${name}_verifier(completion: str, answer: str) -> Verdict:
    """Judges whether the completion is the sum and nothing else.

    Args:
        completion: the text that is judged; blanks around it do not count.
        answer: the sum.
    """
    stated = completion.strip()
    return Verdict(_value(stated) == _value(answer), extracted=stated[:200] or None, reason=f"expected {answer}")


@reward(
    version=1,
    range=(0.0, 1.0),
    cases=[Case(text, row={"answer": "42"}, expect=1.0 if right else 0.0) for text, right in _CASES],
)
def ${name}_reward(completion: str, answer: str) -> float:
    """1 when the verifier accepts the completion, else 0.

    Args:
        completion: the text that is scored.
        answer: the sum.
    """
    return 1.0 if ${name}_verifier(completion, answer).ok else 0.0


def _value(text: object) -> float | None:
    """Reads a number written as people write it; None when it is none."""
    plain = str(text).strip().removeprefix("$$").replace(",", "")
    try:
        return float(plain) if plain.isascii() and len(plain) < 40 else None
    except ValueError:
        return None


def rows(split: str, *, largest: int = 50, size: int = 200) -> list[dict[str, str]]:
    """Makes up the rows of a split; those of one split do not depend on those of another."""
    source = random.Random(f"$name {split}")
    pairs = [(source.randint(0, largest), source.randint(0, largest)) for _ in range(size)]
    return [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]


@env(version=1, dataset=rows, rewards=["${name}_reward"], verifier="${name}_verifier")
def $name(*, largest: int = 50, size: int = 200) -> Any:
    """Asks for the sum of two numbers; the answer is the number alone.

    Args:
        largest: the largest number to add.
        size: the number of rows in each split.
    """
    from $package.environment import SumEnv

    return SumEnv(rows("train", largest=largest, size=size))


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Offers the environment to grpo."""
    return [$name]


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers its reward to grpo."""
    return [${name}_reward]


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers its verifier to grpo."""
    return [${name}_verifier]
'''

ENVIRONMENT = '''\
"""The gymnasium environment: one sum to answer. It scores nothing itself; the run's rewards score the completion."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Text


class SumEnv(gymnasium.Env[str, str]):
    """Asks for one sum.

    Args:
        rows: the rows to pick from when `reset` is given none.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.observation_space = Text(256, min_length=0, charset=string.printable)
        self.action_space = Text(256, min_length=0, charset=string.printable)
        self._rows = rows
        self._open = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of `options["row"]`, or of a row picked with the seed."""
        super().reset(seed=seed)
        row = options["row"] if options and "row" in options else self._pick()
        self._open = True
        prompt = [{"role": "user", "content": f"{row['question']} Answer with the number alone."}]
        return row["question"], {"prompt": prompt, "row": dict(row), "demonstration": row["answer"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the answer and ends the episode, unscored.

        Raises:
            ResetNeeded: nothing was asked.
        """
        if not self._open:
            raise ResetNeeded("nothing was asked: call reset() before each step().")
        self._open = False
        return "", 0.0, True, False, {}

    def _pick(self) -> Mapping[str, Any]:
        return self._rows[int(self.np_random.integers(len(self._rows)))]
'''

ENV_TEST = '''\
"""The environment plays the same episode twice, survives any action, and its demonstrations score highest."""

from __future__ import annotations

from grpo import Host, check_env, check_reward, check_verifier, validate

from $package import $name, ${name}_reward, ${name}_verifier, rows


def test_the_environment_can_be_trusted() -> None:
    report = check_env("$distribution/$name")
    assert report.ok, str(report)


def test_every_row_can_be_solved() -> None:
    for split in ("train", "test"):
        report = validate("$distribution/$name", split=split)
        assert report.ok, str(report)


def test_its_scores_can_be_trusted() -> None:
    for report in (check_reward(${name}_reward), check_verifier(${name}_verifier)):
        assert report.ok, str(report)


def test_the_splits_differ() -> None:
    assert rows("train", size=20) != rows("test", size=20)


def test_grpo_finds_it() -> None:
    assert Host.discover().env("$distribution/$name").spec is $name
'''

SANDBOX = '''\
"""The sandbox $name: programs run in another sandbox, and once more when that one fails.

In: jobs. Out: what happened to each. Put a machine of your own in the place of the inner sandbox: a remote worker, a
container engine, a virtual machine. Whatever fails there is the outcome "unavailable" and never a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo import Host, Job, JobResult, SandboxPool, SandboxSpec, hookimpl, sandbox

grpo_contract = $contract


class RetryingPool:
    """A pool that gives its jobs to another one, and those that met trouble a second time."""

    def __init__(self, inner: SandboxPool) -> None:
        self._inner = inner

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Runs jobs and returns their results in order."""
        results = list(await self._inner.run(jobs))
        again = [number for number, result in enumerate(results) if result.trouble]
        if again:
            for number, result in zip(again, await self._inner.run([jobs[n] for n in again]), strict=True):
                results[number] = result
        return results

    def capabilities(self) -> Mapping[str, bool]:
        """Returns what the inner sandbox can do."""
        return self._inner.capabilities()

    def close(self) -> None:
        """Closes the inner sandbox."""
        self._inner.close()

    @classmethod
    def reap(cls) -> int:
        """Leaves nothing of its own behind; the inner sandbox reaps what it made."""
        return 0


@sandbox(version=1)
def $name(*, inner: str = "local") -> SandboxPool:
    """Runs programs in another sandbox, and once more when that one fails.

    Args:
        inner: the SPEC of the other sandbox.

    Raises:
        UsageError: the SPEC names no sandbox.
        SandboxUnavailable: it cannot run here.
    """
    return RetryingPool(Host.discover().sandbox(inner).make())


@hookimpl
def grpo_sandboxes() -> list[SandboxSpec]:
    """Offers the sandbox to grpo."""
    return [$name]
'''

SANDBOX_TEST = '''\
"""The sandbox reports what happens to programs as every sandbox does, and tries again what met trouble."""

from __future__ import annotations

import asyncio

from grpo import Host, Job, JobResult, check_sandbox

from $package import RetryingPool, $name


class Shaky:
    """A pool whose first answer is always trouble."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, jobs: list[Job]) -> list[JobResult]:
        self.calls += 1
        return [JobResult("unavailable" if self.calls == 1 else "exited", exit_code=0) for _ in jobs]

    def capabilities(self) -> dict[str, bool]:
        return {}

    def close(self) -> None:
        pass

    @classmethod
    def reap(cls) -> int:
        return 0


def test_it_keeps_what_a_sandbox_promises() -> None:
    report = check_sandbox($name, attacks=[])
    assert report.ok, str(report)


def test_trouble_is_tried_again_once() -> None:
    inner = Shaky()
    results = asyncio.run(RetryingPool(inner).run([Job("print(1)"), Job("print(2)")]))
    assert [result.outcome for result in results] == ["exited", "exited"]
    assert inner.calls == 2


def test_grpo_finds_it() -> None:
    assert Host.discover().sandbox("$distribution/$name@1").spec is $name
'''

SAMPLER = '''\
"""The sampler $name: what became of the rows of an environment in, the rows to ask next out.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

from grpo import RowsSeen, SamplerSpec, hookimpl, sampler

grpo_contract = $contract


@sampler(version=1)
def $name(seen: RowsSeen, *, solved: float = 0.9, again: int = 20) -> list[int]:
    """Asks the row that was asked longest ago first; one that was solved rests.

    It is a function of what it is given, so a run that resumes asks the same rows.

    Args:
        seen: the rows, and what became of each.
        solved: the pass rate from which on a row rests.
        again: the steps for which it rests; no row is left out for good.
    """
    free = seen.longest_ago([row for row in range(seen.rows) if row not in seen.taken])
    resting = [row for row in free if _rests(seen, row, solved, again)]
    return [*(row for row in free if row not in resting), *resting][: seen.count]


def _rests(seen: RowsSeen, row: int, solved: float, again: int) -> bool:
    if row not in seen.visits:
        return False
    last = seen.visits[row][-1]
    return last.rate is not None and last.rate >= solved and seen.step - last.step < again


@hookimpl
def grpo_samplers() -> list[SamplerSpec]:
    """Offers the sampler to grpo."""
    return [$name]
'''

SAMPLER_TEST = '''\
"""The sampler chooses rows that there are, the same from the same, and lets solved ones rest."""

from __future__ import annotations

from grpo import Host, RowsSeen, Visit, check_sampler

from $package import $name


def test_it_keeps_what_a_sampler_promises() -> None:
    report = check_sampler($name)
    assert report.ok, str(report)


def test_solved_rows_rest_and_come_again() -> None:
    visits = {0: [Visit(1, 1.0, False)], 1: [Visit(2, 0.5, True)], 2: [Visit(3, 0.0, False)]}
    assert $name(RowsSeen(3, 2, 4, visits=visits)) == [1, 2]
    assert $name(RowsSeen(3, 2, 30, visits=visits)) == [0, 1]


def test_grpo_finds_it() -> None:
    assert Host.discover().sampler("$distribution/$name@1").spec is $name
'''

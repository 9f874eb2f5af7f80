"""What holds for every built-in reward and verifier."""

import asyncio
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from grpo import Case, RewardSpec, VerifierSpec
from grpo.plugins.rubric import RubricSpec
from grpo.plugins.types import Completion, Scored
from grpo.rewards import grpo_rewards, grpo_verifiers

# What an environment says of a rollout has no text for a case: test_environment.py makes rollouts.
OFFERED: list[RewardSpec | VerifierSpec] = [*grpo_rewards(), *grpo_verifiers()]
SPECS = [spec for spec in OFFERED if spec.name != "environment"]
REWARDS = [spec for spec in SPECS if spec.kind == "reward"]
# A judge needs an endpoint: test_judge.py tries its cases against a stand-in.
EXAMPLES = [(spec, case) for spec in SPECS for case in spec.cases if spec.name != "judge"]


def call(spec: RewardSpec | VerifierSpec, text: str, row: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    first = Completion(text, row=row) if spec.whole else text
    result = spec(first, *(row.get(column.found_in(row), column.default) for column in spec.columns), **options)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    return result.ok if spec.kind == "verifier" else result


def test_the_public_names_are_these() -> None:
    assert sorted(spec.name for spec in REWARDS) == [
        "arithmetic",
        "code",
        "cosine",
        "countdown",
        "email",
        "email.exact",
        "email.keywords",
        "email.length",
        "email.recipient",
        "email.signature",
        "format",
        "gsm8k.correctness",
        "gsm8k.integer",
        "gsm8k.soft_format",
        "gsm8k.strict_format",
        "gsm8k.xmlcount",
        "judge",
        "knights_and_knaves",
        "length",
        "math",
        "overlong",
        "proximity",
        "proximity.check_numbers",
        "proximity.match_format_approximately",
        "proximity.match_format_exactly",
        "repetition",
        "text_match",
    ]
    assert [spec.name for spec in grpo_verifiers()] == [
        "gsm8k",
        "math",
        "code",
        "countdown",
        "knights_and_knaves",
        "environment",
    ]


@pytest.mark.parametrize(("spec", "case"), EXAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_each_case_scores_what_it_says(spec: RewardSpec | VerifierSpec, case: Case) -> None:
    assert isinstance(case.completion, str)
    got = call(spec, case.completion, case.row, case.options)
    got = got.score if isinstance(got, Scored) else got
    if isinstance(case.expect, float):
        assert got == pytest.approx(case.expect, abs=1e-12)
    else:
        assert got is case.expect


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.kind}-{spec.name}")
def test_each_spec_documents_itself_with_cases_and_runs_inline_unless_it_computes(
    spec: RewardSpec | VerifierSpec,
) -> None:
    assert len(spec.cases) >= 3
    assert len(spec.doc.splitlines()) >= 3
    assert spec.isolation == ("process" if spec.name in ("code", "cosine", "math") else "inline")
    assert any(case.completion == "" or not any(c.isdigit() for c in case.completion) for case in spec.cases) or any(
        case.expect == 0.0 for case in spec.cases
    )


@pytest.mark.parametrize("spec", REWARDS, ids=lambda spec: spec.name)
def test_each_range_is_reached_by_a_case_at_both_ends_unless_it_is_open(spec: RewardSpec) -> None:
    """Reached, or nearly: nothing but repetition comes as near to the lowest score as one likes, and never there."""
    scores = [case.expect for case in spec.cases if isinstance(case.expect, float)]
    low, high = spec.range
    assert max(scores) == high
    assert low == float("-inf") or min(scores) == pytest.approx(low, abs=0.002)


@pytest.mark.parametrize(
    "spec", [spec for spec in SPECS if not isinstance(spec, RubricSpec)], ids=lambda spec: f"{spec.kind}-{spec.name}"
)
def test_each_function_travels_between_processes(spec: RewardSpec | VerifierSpec) -> None:
    module = sys.modules[spec.function.__module__]
    assert getattr(module, spec.function.__name__).function is spec.function
    assert pickle.loads(pickle.dumps(spec.cases)) == spec.cases


def test_offering_the_specs_loads_nothing_heavy() -> None:
    script = (
        "import json, sys; from grpo.rewards import grpo_rewards, grpo_verifiers; grpo_rewards(); grpo_verifiers();"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'numpy', 'gymnasium', 'sympy'};"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []

"""`grpo eval` with a tiny model and with runs, and everything that it refuses before a model loads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grpo.core.cli.main import cli
from grpo.core.measure.model import Choices, plan_evaluation
from grpo.core.policy import weights as weights_module
from grpo.core.policy.weights import find_weights
from grpo.core.record.checkpoint import COMPLETE
from grpo.plugins.errors import GrpoError, RunError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Verdict

SMALL = ["--size", "6", "--max-completion-length", "8"]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["eval", *map(str, arguments)], catch_exceptions=True)


def measured(*arguments: str | Path) -> dict[str, Any]:
    result = invoke("--json", *arguments)
    assert result.exit_code == 0, result.exception
    figures: dict[str, Any] = json.loads(result.stdout)
    return figures


@pytest.fixture
def tiny(tiny_model: Path) -> list[str]:
    return ["--env", "gsm8k:size=20", "--model", str(tiny_model), "--dataset", "embedded", *SMALL]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A file with a reward that scores, abstains or fails."""
    file = tmp_path / "odd.py"
    file.write_text(
        '''
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def moody(completion: str, answer: str) -> float | None:
    """Scores, abstains or fails by the answer."""
    number = int(answer) % 3
    if number == 0:
        raise ValueError("boom")
    return None if number == 1 else 0.5
''',
        encoding="utf-8",
    )
    return file


@pytest.mark.core
def test_eval_measures_accuracy_and_rewards_without_training(tiny: list[str], vowels: str) -> None:
    figures = measured(*tiny, "--reward", "proximity", "--reward", vowels)
    assert (figures["problems"], figures["samples"], figures["temperature"]) == (6, 1, 0.0)
    assert figures["verdicts"] == {"right": 0, "wrong": 6, "undecided": 0, "failed": 0}
    assert figures["accuracy"]["mean"] == 0.0
    assert figures["accuracy"]["high"] == pytest.approx(0.3903, abs=1e-4)  # Wilson, 0 of 6
    assert set(figures["rewards"]) == {"proximity", "vowels"}
    near = figures["rewards"]["vowels"]
    assert near["low"] < near["mean"] < near["high"]
    assert 0 < near["mean"] < 1
    assert 1 <= figures["mean_tokens"] <= 8


def test_eval_writes_what_it_measured_and_says_the_same_in_words(tiny: list[str], vowels: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    result = invoke(*tiny, "--reward", vowels, "-n", "2", "--output", file)
    assert result.exit_code == 0, result.exception
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(row["problem"], row["sample"]) for row in rows] == [(i, j) for i in range(6) for j in range(2)]
    assert {"question", "answer", "solution", "completion", "prompt", "tokens", "finish_reason"} <= set(rows[0])
    assert rows[0]["prompt"][-1] == {"role": "user", "content": rows[0]["question"]}
    assert rows[0]["verdict"]["outcome"] == "verdict"
    assert {row["finish_reason"] for row in rows} <= {"stop", "length"}
    mean = sum(row["scores"]["vowels"]["score"] for row in rows) / 12
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert lines["vowels"].split()[1] == f"{mean:.3f}"
    assert "0 right, 12 wrong, 0 undecided, 0 failed" in lines["accuracy"]
    assert "pass@2" in lines
    cut = sum(row["finish_reason"] == "length" for row in rows)
    assert f"{cut} of 12 cut at 8" in lines["length"]


def test_its_rows_are_rows_for_grpo_score(tiny: list[str], vowels: str, tmp_path: Path) -> None:
    rows, scored = tmp_path / "rows.jsonl", tmp_path / "scored.jsonl"
    assert invoke(*tiny, "--reward", vowels, "--output", rows).exit_code == 0
    arguments = ["score", "--reward", vowels, "--input", str(rows), "--output", str(scored)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    for before, after in zip(rows.read_text().splitlines(), scored.read_text().splitlines(), strict=True):
        assert json.loads(before)["scores"]["vowels"] == json.loads(after)["scores"]["vowels"]


@pytest.mark.slow
def test_sampling_is_seeded_and_greedy_is_not_random(tiny: list[str], vowels: str) -> None:
    def rewards(*arguments: str) -> float:
        return float(measured(*tiny, "--reward", vowels, *arguments)["rewards"]["vowels"]["mean"])

    assert rewards("-n", "2", "--seed", "1") == rewards("-n", "2", "--seed", "1")
    assert rewards("-n", "2", "--seed", "1") != rewards("-n", "2", "--seed", "2")
    assert rewards("--seed", "1") == rewards("--seed", "2") == rewards("--batch-size", "2") != 0


def test_failures_and_abstentions_are_counted_and_not_averaged(tiny: list[str], plugin: Path) -> None:
    result = invoke(*tiny, "--size", "12", "--reward", f"{plugin}:moody", "--json")
    figures = json.loads(result.stdout)["rewards"]["moody"]
    assert figures["failed"] > 0
    assert figures["abstained"] > 0
    assert figures["values"] + figures["failed"] + figures["abstained"] == 12
    assert figures["mean"] == 0.5
    assert "ValueError: boom" in result.stderr
    assert "'moody' failed; the completions that it failed on are excluded" in result.stderr


def test_a_verifier_that_fails_on_everything_is_an_error_and_no_accuracy_of_zero(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.plugins._spec import binding as _binding

    def broken(self: Any, completion: Any) -> Any:
        raise ValueError("boom")

    monkeypatch.setattr(
        _binding.BoundVerifier, "calls", lambda self, completions: map(partial(broken, self), completions)
    )
    result = invoke(*tiny, "--json")
    assert isinstance(result.exception, RunError)
    figures = json.loads(result.stdout)
    assert figures["accuracy"]["mean"] is None
    assert figures["verdicts"] == {"right": 0, "wrong": 0, "undecided": 0, "failed": 6}


def test_undecided_verdicts_are_counted_apart_from_wrong_ones(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo.plugins._spec import binding as _binding

    verdicts = cycle([Verdict(None), Verdict(True), Verdict(False)])
    monkeypatch.setattr(_binding.BoundVerifier, "calls", lambda self, completions: verdicts)
    figures = json.loads(invoke(*tiny, "--json").stdout)
    assert figures["verdicts"] == {"right": 2, "wrong": 2, "undecided": 2, "failed": 0}
    assert (figures["accuracy"]["mean"], figures["accuracy"]["values"]) == (0.5, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full_run", "lora_run"])
def test_a_run_brings_its_own_settings_and_measures_as_it_did(kind: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(kind)
    figures = measured("--model", run, "--size", "4")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (figures["model"], figures["step"], figures["env"]) == (str(run), 2, "gsm8k")
    assert figures["max_completion_length"] == 16
    assert set(figures["rewards"]) == {"vowels"}
    assert figures["accuracy"]["mean"] == last["held_out/accuracy"]


@pytest.mark.slow
def test_naming_an_environment_leaves_the_rewards_of_the_run_behind(full_run: Path) -> None:
    figures = measured("--model", full_run, "--env", "gsm8k:size=20", "--dataset", "embedded", *SMALL)
    assert set(figures["rewards"]) == {"proximity", "gsm8k.soft_format"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
def test_an_agent_in_a_session_does_not_see_the_run_that_is_measured(
    full_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))  # so that sessions share the folder
    run, agent, tasks = (tmp_path / name for name in ("run", "mine.py", "tasks.jsonl"))
    shutil.copytree(full_run, run)
    agent.write_text(
        "import json, os, urllib.request\n\n\ndef run(task, access):\n"
        "    asked = {'model': access.model, 'messages': [{'role': 'user', 'content': task.instruction}]}\n"
        "    where = f'{access.url}/r/{access.key}/v1/chat/completions'\n"
        "    kind = {'Content-Type': 'application/json'}\n"
        "    request = urllib.request.Request(where, json.dumps(asked).encode(), kind)\n"
        "    urllib.request.urlopen(request).read()\n"
        f"    open('seen.txt', 'w').write(str(os.listdir({str(run)!r})))\n"
    )
    tasks.write_text(json.dumps({"instruction": "Look.", "grader": "test $(cat seen.txt) = []"}) + "\n")
    played = ("--env", f"shell:{tasks}", "--agent", f"python:{agent}:run")
    assert measured("--model", run, *played)["accuracy"]["mean"] == 1.0


@pytest.mark.slow
def test_an_adapter_on_its_base_measures_like_its_run(
    lora_run: Path, tiny_model: Path, vowels: str, tmp_path: Path
) -> None:
    rows = [tmp_path / f"{name}.jsonl" for name in ("run", "adapter", "base")]
    tiny: list[str | Path] = [
        "--env",
        "gsm8k:size=40",
        "--model",
        tiny_model,
        "--dataset",
        "embedded",
        "--reward",
        vowels,
    ]
    length = ["--size", "4", "--max-completion-length", "16"]
    measured("--model", lora_run, *length, "--output", rows[0])
    measured(*tiny, "--adapter", lora_run / "model", *length, "--output", rows[1])
    measured(*tiny, *length, "--output", rows[2])
    run, adapter, base = ([json.loads(line)["completion"] for line in file.read_text().splitlines()] for file in rows)
    assert run == adapter
    assert run != base


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "gsm8"], "Did you mean 'gsm8k'"),
        ([], "no environment"),
        (["--env", "gsm8k", "--reward", "gsm8k"], "Did you mean 'gsm8k.correctness'"),
        (["--env", "gsm8k", "--reward", "proximty"], "Did you mean 'proximity'"),
        (["--env", "gsm8k", "--reward", "proximity", "--reward", "proximity"], "two rewards are named 'proximity'"),
        (["--env", "gsm8k", "-n", "4", "--temperature", "0"], "4 equal completions"),
        (["--env", "gsm8k", "--max-completion-length", "5000"], "over the model's context of 1024"),
        (["--env", "gsm8k", "--dataset", "missing.jsonl"], "missing.jsonl"),
        (["--env", "gsm8k", "--output", "nowhere/rows.jsonl"], "there is no folder nowhere"),
        (["--env", "gsm8k", "--adapter", "./nothing"], "no adapter_config.json"),
    ],
)
def test_bad_input_is_refused_before_a_model_loads(
    arguments: list[str], message: str, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def loading(*_: Any, **__: Any) -> Any:
        raise AssertionError("it loaded a model")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights_module, "load_policy", loading)
    dataset = [] if "--dataset" in arguments else ["--dataset", "embedded"]
    result = invoke("--model", tiny_model, *dataset, *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_a_folder_that_is_no_model_and_a_run_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    for name in ("20250101-gsm8k", "20250102-gsm8k", "20250104-gsm8k"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "versions.json"):
            (tmp_path / name / file).write_text('{"env": "gsm8k", "train": {"steps": 2}}')
    checkpoint = tmp_path / "20250104-gsm8k" / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    (checkpoint / COMPLETE).write_text('{"files": {"model.safetensors": {"bytes": 5}}}')
    cases = {
        str(tmp_path): "no config.json in that folder",
        str(tmp_path / "20250103-gsm8k"): "Did you mean '2025010",
        str(tmp_path / "20250101-gsm8k"): "has no weights yet",
        str(tmp_path / "20250104-gsm8k"): "checkpoint-2 was damaged and is passed over: model.safetensors is missing.",
    }
    for model, message in cases.items():
        result = invoke("--env", "gsm8k", "--model", model)
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)


def test_two_adapters_or_a_run_as_an_adapter_are_refused(tmp_path: Path) -> None:
    adapter, run = tmp_path / "adapter", tmp_path / "run"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "some/model"}')
    run.mkdir()
    for file in ("config.json", "versions.json"):
        (run / file).write_text("{}")
    refused: list[tuple[list[str | Path], str]] = [
        (["--model", adapter, "--adapter", adapter], "is an adapter itself"),
        (["--adapter", run], "is a run directory. Name it with --model"),
    ]
    for arguments, message in refused:
        result = invoke("--env", "gsm8k", *arguments)
        assert isinstance(result.exception, GrpoError)
        assert message in str(result.exception)


def test_the_help_loads_no_torch() -> None:
    script = (
        "import sys, contextlib\nfrom grpo.core.cli.main import cli\n"
        "for name in ('eval', 'generate', 'export', 'runs', 'show'):\n"
        "    cli([name, '--help'], standalone_mode=False)\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'transformers', 'trl', 'gymnasium', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, cwd="/").returncode == 0


def test_a_disk_that_fills_up_loses_the_rows_but_not_the_figures(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    result = invoke(*tiny, "--output", tmp_path / "rows.jsonl")
    assert isinstance(result.exception, RunError)
    assert "No space left on device" in str(result.exception)
    assert "accuracy" in result.stdout
    assert list(tmp_path.iterdir()) == []


FLAKY = """
import gymnasium
from grpo import EnvSpec
from grpo.envs.text.spaces import AnyText

class Flaky(gymnasium.Env):
    observation_space = action_space = AnyText()
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("starting", seed)
        self.seed = seed
        return "Go on.", {}
    def step(self, action):
        print("stepping")
        if self.seed % 2 or self.always:
            raise OSError("the backend is away")
        return "", 1.0, True, False, {"success": True}

class Broken(Flaky):
    always = True

class Sometimes(Flaky):
    always = False

flaky = EnvSpec("flaky", 1, Sometimes, rewards=("environment",), verifier="environment", max_turns=2)
broken = EnvSpec("broken", 1, Broken, rewards=("environment",), verifier="environment", max_turns=2)
"""


def test_rollouts_that_their_environment_failed_are_counted_and_the_reason_is_told(
    tiny_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "flaky.py"
    file.write_text(FLAKY, encoding="utf-8")
    model = ["--model", str(tiny_model), *SMALL]
    result = invoke("--env", f"{file}:flaky", *model, "--json")
    assert result.exit_code == 0, result.exception
    figures = json.loads(result.stdout)
    assert "stepping" in result.stderr, "what environments print is no result"
    assert (figures["failed_rollouts"], figures["rewards"]["environment"]["values"]) == (3, 3)
    assert (figures["accuracy"]["mean"], figures["verdicts"]["failed"]) == (1.0, 3)
    assert "3 of 6 rollouts failed and are left out" in result.stderr
    assert "OSError: the backend is away" in result.stderr
    result = invoke("--env", f"{file}:broken", *model)
    assert isinstance(result.exception, RunError)
    assert "every rollout of broken failed in the environment" in str(result.exception)
    assert "OSError: the backend is away" in result.stderr


@pytest.mark.slow
def test_a_run_that_named_a_verifier_is_measured_with_it(full_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(full_run, run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"verifier": "math:as=algebra"}))
    plan = plan_evaluation(find_weights(str(run)), Host.discover(), Choices(size=2))
    assert plan.verifier is not None
    assert plan.verifier.name == "algebra"


def test_a_note_says_that_only_the_end_of_a_file_is_measured(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps({"question": f"What is {n} + 1?", "answer": str(n)}) + "\n" for n in range(30)))

    def notes(dataset: Path, split: str = "test") -> str:
        chosen = Choices(env="gsm8k", dataset=str(dataset), split=split)
        return " ".join(plan_evaluation(find_weights(str(tiny_model)), Host.discover(), chosen).notes)

    assert f"{file} has no test split, so its last tenth (at most 500) is measured: 3 problems." in notes(file)
    assert "--split train measures the rest." in notes(file)
    assert notes(file, "train") == ""
    assert notes(tmp_path) == "", "the folder's file named test.jsonl is measured whole"


@pytest.mark.slow
def test_a_run_is_measured_on_rows_that_ask_nothing_it_was_trained_on(full_run: Path, tmp_path: Path) -> None:
    def rows(numbers: Sequence[int]) -> str:
        return "".join(json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) + "\n" for n in numbers)

    run = tmp_path / "run"
    shutil.copytree(full_run, run)
    config = json.loads((run / "config.json").read_text())
    own = {
        "env": f"rows:dataset={tmp_path}",
        "rewards": [],
        "dataset": None,
        "train": {**config["train"], "limit": None},
    }
    (run / "config.json").write_text(json.dumps(config | own))
    (tmp_path / "train.jsonl").write_text(rows(range(20)))
    (tmp_path / "test.jsonl").write_text(rows([*range(19), 77]))
    weights, host = find_weights(str(run)), Host.discover()
    plan = plan_evaluation(weights, host, Choices())
    assert [episode.row["answer"] for episode in plan.episodes] == ["78"]
    assert plan.notes[0].startswith("env 'rows': 19 of 20 held-out rows ask what training rows ask")
    other = Choices(env=f"rows:dataset={tmp_path}")
    assert len(plan_evaluation(weights, host, other).episodes) == 20, "what is not the run's was not trained on"
    (tmp_path / "test.jsonl").write_text(rows(range(20)))
    with pytest.raises(UsageError, match=r"no held-out accuracy is measured.* --split train"):
        plan_evaluation(weights, host, Choices())
    assert len(plan_evaluation(weights, host, Choices(split="train")).episodes) == 20


@pytest.mark.core
def test_a_model_that_is_none_is_refused_before_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = invoke("--model", "no-such-model", "--env", "gsm8k")  # its rows are on the hub too
    assert "cannot load the configuration of 'no-such-model'" in str(result.exception)

"""What training on our scores means; plain TRL says what it should."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins.errors import RunError

pytestmark = pytest.mark.slow

REWARDS = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def vowels(completion: str) -> float:
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def brittle(completion: str, *, share: float = 0.25) -> float:
    if sum(map(ord, completion)) % 100 < 100 * share:
        raise RuntimeError("cannot read this one")
    return 0.5 + 0.5 * (len(completion) % 7) / 7

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def shy(completion: str) -> float | None:
    return None if len(completion) % 2 else 1.0
"""


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    file = tmp_path / "rewards.py"
    file.write_text(REWARDS)
    return file


def tiny_run(tiny_model: Path, out: Path, rewards: list[str], **settings: Any) -> Any:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    train = {"steps": 2, "prompts_per_step": 2, "group_size": 4, "lr": 1e-3, "dtype": "float32"}
    train |= settings.pop("train", {})
    tree = {
        "env": "gsm8k",
        "dataset": "embedded",
        "model": str(tiny_model),
        "rewards": rewards,
        "out": str(out),
        "train": train,
        "rollout": {"max_completion_length": 12},
        "evaluation": {"size": 0},
        **settings,
    }
    return start(parse_config(tree), Host.discover(), Silent())


def trained(folder: Path) -> dict[str, Any]:
    """The tensors of a model's folder, or of its adapter's."""
    from safetensors.torch import load_file

    adapter = folder / "adapter_model.safetensors"
    return load_file(adapter if adapter.exists() else folder / "model.safetensors")


CISPO = {"type": "cispo:epsilon_high=2.0"}
LORA = {"lora": {"enabled": True, "rank": 4}}


def test_layers_of_an_update_are_faster_only_while_it_computes(
    tiny_model: Path, rewards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling has its own, which leave alone what is changed already, and is a part of a training step of TRL."""
    from grpo.core.rollout.hf import sampler
    from grpo.core.train.update.policy_loss import PolicyLoss

    seen: list[tuple[str, bool]] = []
    sample, compute_loss = sampler.sample, PolicyLoss.__call__

    def note(when: str, model: Any) -> None:
        seen.append((when, any("forward" in vars(at) for name, at in model.named_modules() if name.endswith("q_proj"))))

    def sampled(model: Any, *given: Any, **how: Any) -> Any:
        note("sampling", model)
        return sample(model, *given, **how)

    def computed(self: Any, model: Any, *given: Any, **how: Any) -> Any:
        note("update", model)
        return compute_loss(self, model, *given, **how)

    monkeypatch.setattr(sampler, "sample", sampled)
    monkeypatch.setattr(PolicyLoss, "__call__", computed)
    tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:vowels"], **LORA)
    assert seen.count(("sampling", False)) == 2, "in each of two steps"
    assert set(seen) == {("sampling", False), ("update", True)}


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        pytest.param({"type": "grpo", "num_iterations": 2, "beta": 0.1}, {}, marks=pytest.mark.core),
        ({"type": "grpo", "num_iterations": 2, "beta": 0.1, "use_bias_correction_kl": False}, {}),
        pytest.param({"type": "bnpo"}, LORA, marks=pytest.mark.core),
        ({"type": "dr_grpo:delta=1.5", "num_iterations": 2, "advantage": "group_mean:scale=none"}, {}),
        pytest.param({"type": "dapo", "mask_truncated_completions": True}, {}, marks=pytest.mark.core),
        ({"type": "dapo"}, {"train": {"head": "trl"}}),
        ({**CISPO, "num_iterations": 2}, LORA),
        (CISPO, {}),
        pytest.param({"type": "gspo", "num_iterations": 2}, LORA, marks=pytest.mark.core),
        ({"type": "gspo:epsilon_high=0.28", "beta": 0.1, "advantage": "group_mean:scale=batch"}, {}),
    ],
    ids=str,
)
def test_without_failures_the_weights_equal_those_of_plain_trl(
    loss: dict[str, Any],
    settings: dict[str, Any],
    tiny_model: Path,
    rewards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Same samples, same rewards: TRL's own head, loss and advantages must lead to the same policy as ours.

    Both descend the plain gradient: Adam would blow rounding up to its own step size where a gradient is almost zero.
    """
    import torch
    from prompt_rows import prompt_rows
    from transformers import set_seed
    from trl import GRPOTrainer
    from trl.models import unwrap_model_for_generation

    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy, load_tokenizer
    from grpo.core.rollout.draws import keys_of
    from grpo.core.rollout.hf.sampler import HfRollouts
    from grpo.core.rollout.synced import SyncedRollouts
    from grpo.core.rollout.types import sampling_params
    from grpo.core.train import trl_arguments
    from grpo.core.train.trainer import grpo_config
    from grpo.plugins.host import Host

    def plain_descent(*arguments: Any) -> dict[str, Any]:
        return {**trl_arguments.grpo_arguments(*arguments), "optim": "sgd"}

    monkeypatch.setattr("grpo.core.train.trainer.grpo_arguments", plain_descent)
    monkeypatch.setattr("grpo.kernels.fused.gradients", None)  # coefficients that prove wrong would call it
    train = {"steps": 4, "micro_batch_size": 4, "lr": 0.1, "lr_warmup_steps": 0, **settings.get("train", {})}
    tiny_run(tiny_model, tmp_path / "ours", [f"{rewards}:vowels"], **{**settings, "loss": loss, "train": train})

    tree = json.loads((tmp_path / "ours" / "config.json").read_text())
    plan = make_plan(parse_config({**tree, "out": str(tmp_path / "theirs")}), Host.discover())

    class Plain(GRPOTrainer):  # type: ignore[misc]
        """TRL with our sampler only, so that both see the same completions."""

        def _generate_single_turn(self, prompt_ids: Any, *_: Any) -> Any:
            params = sampling_params(plan.config.rollout, self.eos_token_ids, self.processing_class.pad_token_id)
            rollouts = SyncedRollouts(
                HfRollouts(), lambda: unwrap_model_for_generation(self.model_wrapped, self.accelerator)
            )
            keys = keys_of(plan.config.seed, self.state.global_step + 1, range(len(prompt_ids)))
            own = replace(params, keys=keys)
            done, _synced = rollouts.roll_out(lambda backend: backend.generate(prompt_ids, own))
            return [list(s.token_ids) for s in done], [list(s.logprobs) for s in done]

    def vowels(completions: list[Any], **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        return [sum(letter in "aeiou" for letter in text) / max(len(text), 1) for text in texts]

    tokenizer = load_tokenizer(str(tiny_model))
    set_seed(plan.config.seed)  # a fresh adapter is drawn at random
    policy = load_policy(str(tiny_model), "float32", plan.config.lora)
    trainer = Plain(
        model=policy,
        reward_funcs=[vowels],
        args=grpo_config(plan, tmp_path / "theirs"),
        train_dataset=prompt_rows(plan),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "theirs" / "model"))
    ours, theirs, start = (
        trained(folder) for folder in (tmp_path / "ours" / "model", tmp_path / "theirs" / "model", tiny_model)
    )
    assert ours.keys() == theirs.keys()
    moved = max(float((w - start[name]).abs().max()) if name in start else 1.0 for name, w in ours.items())
    assert moved > 1e-3
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-6)


@pytest.mark.core
def test_a_crashing_reward_is_masked_and_never_a_zero(tiny_model: Path, rewards: Path, tmp_path: Path) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics, read_rollouts

    run = tiny_run(
        tiny_model,
        tmp_path / "run",
        [f"{rewards}:vowels", f"{rewards}:brittle"],
        failures={"stop_share": 0.9, "retries": 0},
    )
    directory = RunDir(run.path)
    rows = [row for step in (1, 2) for row in read_rollouts(directory, step)]
    failed = [row for row in rows if row["outcome.brittle"] == "failure"]
    scored = [row for row in rows if row["outcome.brittle"] == "score"]
    assert failed
    assert scored
    assert all(row["score.brittle"] is None and row["reward"] is None and row["advantage"] == 0.0 for row in failed)
    assert all("cannot read this one" in row["reason.brittle"] for row in failed)
    assert all(row["reward"] > 0.49 for row in scored)
    shares = [row["rewards/brittle/failure"] for row in read_metrics(directory)]
    assert sum(shares) / len(shares) == pytest.approx(len(failed) / len(rows))


@pytest.mark.core
def test_masked_completions_change_no_weight(tiny_model: Path, rewards: Path, tmp_path: Path) -> None:
    """With every completion of every group failed there is nothing to learn from, not even a KL term."""
    import torch
    from transformers import AutoModelForCausalLM

    run = tiny_run(
        tiny_model,
        tmp_path / "run",
        [f"{rewards}:brittle:share=1.0"],
        failures={"stop_share": 1.0, "retries": 0},
        loss={"beta": 0.5},
    )
    before = AutoModelForCausalLM.from_pretrained(tiny_model).state_dict()
    after = AutoModelForCausalLM.from_pretrained(run.path / "model").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.core
def test_too_many_failures_stop_the_run_by_name_and_it_resumes(tiny_model: Path, rewards: Path, tmp_path: Path) -> None:
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_rollouts
    from grpo.core.run.job import resume
    from grpo.plugins.host import Host

    with pytest.raises(RunError, match=r"reward 'brittle' .* failed on \d+ of 8 completions .* cannot read this one"):
        tiny_run(
            tiny_model,
            tmp_path / "run",
            [f"{rewards}:brittle:share=0.9"],
            failures={"stop_share": 0.1, "retries": 0},
        )
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "failed"
    assert "failure" in {row["outcome.brittle"] for row in read_rollouts(RunDir(tmp_path / "run"), 1)}
    rewards.write_text(REWARDS.replace("raise RuntimeError", "return 0.5  #"))
    assert resume(tmp_path / "run", Host.discover(), Silent()).status == "done"


@pytest.mark.core
def test_an_abstention_is_recorded_and_gives_no_advantage_of_its_own(
    tiny_model: Path, rewards: Path, tmp_path: Path
) -> None:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    run = tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:shy"], train={"steps": 1})
    rows = read_rollouts(RunDir(run.path), 1)
    assert {row["outcome.shy"] for row in rows} == {"abstain", "score"}
    assert all(row["advantage"] == 0.0 for row in rows)  # every scored member got 1.0, and nobody a 0
    assert all((row["reward"] is None) == (row["outcome.shy"] == "abstain") for row in rows)


@pytest.mark.core
def test_sampling_and_training_agree_on_every_token(
    tiny_model: Path, rewards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.rollout.hf import faster_layers

    monkeypatch.setattr(faster_layers, "LEAST", 1)  # as those of a large model are, weights are laid out for decoding
    run = tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:vowels"], lora={"enabled": True, "rank": 4})
    differences = [row["sampling/sampling_logp_difference/max"] for row in read_metrics(RunDir(run.path))]
    assert len(differences) == 2
    assert max(differences) < 1e-4


@pytest.mark.parametrize(("loss", "together"), [("dapo", True), ("bnpo", False), ("top_entropy", False)])
def test_the_completions_of_a_prompt_are_trained_on_together_unless_the_loss_looks_at_whole_micro_batches(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, together: bool
) -> None:
    from grpo.core.train.update import forward
    from grpo.core.train.update.packing import pack

    prompts: list[int] = []

    def counted(ids: Any, mask: Any, length: int, *rest: Any, **more: Any) -> Any:
        prompts.append(len({tuple(row) for row in ids[:, :-length].tolist()}))
        return pack(ids, mask, length, *rest, **more)

    monkeypatch.setattr(forward, "pack", counted)
    train = {"steps": 3, "prompts_per_step": 3, "group_size": 4, "micro_batch_size": 4}
    tiny_run(tiny_model, tmp_path / "run", ["proximity"], train=train, loss={"type": loss, "beta": 0.01})
    assert len(prompts) >= 9
    assert (max(prompts) == 1) is together


def test_what_a_step_says_of_its_policy_is_of_groups_with_a_signal(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.train.update import policy_loss
    from grpo.core.train.update.metrics import update_sums

    tokens: list[int] = []

    def counted(value: Any, entropy: Any, mask: Any, importance: Any) -> Any:
        tokens.append(int(mask.sum()))
        return update_sums(value, entropy, mask, importance)

    monkeypatch.setattr(policy_loss, "update_sums", counted)
    file = tmp_path / "rewards.py"
    file.write_text(
        "from grpo import reward\n\n@reward(version=1, range=(0.0, 1.0), isolation='inline')\n"
        "def same(completion: str) -> float:\n    return 1.0\n"
    )
    run = tiny_run(tiny_model, tmp_path / "run", [f"{file}:same"], train={"steps": 1, "micro_batch_size": 4})
    assert tokens == [0, 0]
    assert read_metrics(RunDir(run.path))[-1]["entropy"] is None


def test_what_a_step_says_is_the_same_however_it_is_dealt_out(rewards: Path, tmp_path: Path) -> None:
    from grpo.core.record.run_dir import open_run_dir, read_metrics

    def said(size: int) -> list[dict[str, Any]]:
        train = {"micro_batch_size": size, "head": "grpo"}
        settings = {"type": "grpo:epsilon=0.001", "beta": 0.1, "num_iterations": 2}
        settings["rollout_correction"] = "token_truncate"
        out, more = tmp_path / str(size), {"model": None, "rollout": {"max_completion_length": 64}}
        tiny_run(tmp_path, out, [f"{rewards}:vowels"], train=train, loss=settings, **more)
        rows = read_metrics(open_run_dir(out))
        assert rows[0]["completions/min_length"] < rows[0]["completions/max_length"], "ragged"
        update = ("entropy", "kl", "clip_ratio/", "loss/", "sampling/importance", "sampling/sampling_logp")
        return [{name: row[name] for name in row if name.startswith(update)} for row in rows]

    whole = said(8)
    assert whole[1]["kl"] > 0
    assert whole[1]["clip_ratio/region_mean"] > 0
    for size in (1, 2):
        for row, one in zip(said(size), whole, strict=True):
            assert row == pytest.approx(one, rel=1e-3, abs=1e-5)


def test_the_seconds_of_a_step_are_those_of_its_parts_and_of_its_optimizer(
    tiny_model: Path, rewards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    import torch

    from grpo.core.record.run_dir import open_run_dir, read_metrics

    plain = torch.optim.AdamW.step

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return plain(*arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", slow)
    tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:vowels"])
    for row in read_metrics(open_run_dir(tmp_path / "run")):
        parts = ("generate", "score", "record", "update")
        assert row["time/update"] > 0.5
        assert row["time/step"] == pytest.approx(sum(row[f"time/{part}"] for part in parts))


@pytest.mark.core
def test_the_first_step_of_a_rising_learning_rate_changes_weights(
    tiny_model: Path, rewards: Path, tmp_path: Path
) -> None:
    rising = {"steps": 1, "lr_warmup_steps": 4}
    tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:vowels"], train=rising)
    before, after = trained(tiny_model), trained(tmp_path / "run" / "model")
    assert any(not before[name].equal(after[name]) for name in before)


@pytest.mark.core
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_no_number_ends_the_run_before_a_weight_changes(
    tiny_model: Path, rewards: Path, tmp_path: Path, value: str
) -> None:
    file = tmp_path / "losses.py"
    file.write_text(
        "from grpo import loss\n\n@loss(version=1)\n"
        f"def broken(tokens):\n    return tokens.logps * 0.0 + float('{value}') * tokens.advantages.abs()\n"
    )
    with pytest.raises(RunError, match=rf"the loss of step 1 is {value}\. Lower train\.lr"):
        tiny_run(tiny_model, tmp_path / "run", [f"{rewards}:vowels"], loss={"type": f"{file}:broken"})
    assert not (tmp_path / "run" / "model").exists()

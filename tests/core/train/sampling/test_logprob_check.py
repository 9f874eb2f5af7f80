"""A model that computes other things in training than when it samples ends its run; dropout alone does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.train.sampling.guard import LogprobCheck
from grpo.plugins.errors import RunError


class Step:
    """A step of so many micro batches, each off by so much in training, and by so much again without dropout."""

    step = 7

    def __init__(self, off: list[float], without_dropout: float) -> None:
        self.off = off
        self.done = 0
        self.asked = 0
        self._without_dropout = without_dropout
        self.guard = LogprobCheck(0.01, self, lambda tensor: tensor, self._again, "mixer")

    def rewind(self) -> None:
        raise AssertionError("sampling anew from the same weights would change nothing")

    def _again(self) -> torch.Tensor:
        self.asked += 1
        return torch.tensor([[self._without_dropout * 4, 4.0, self._without_dropout]])

    def backward(self) -> torch.Tensor:
        self.guard.compare(torch.full((1, 4), self.off[self.done]), torch.zeros(1, 4), torch.ones(1, 4))
        self.done = (self.done + 1) % len(self.off)
        return torch.tensor(1.0)

    def whole(self) -> None:
        for _ in self.off:
            assert self.guard.micro_batch(self.backward)[1] == {}


def test_a_step_goes_by_where_its_mean_is_rounding() -> None:
    step = Step([0.015, 0.001], 9.0)
    step.whole()
    assert step.asked == 0


def test_what_is_apart_without_dropout_too_ends_the_run_before_the_weights_change() -> None:
    step = Step([0.0, 0.5], 0.3)
    with pytest.raises(RunError, match=r"step 7: .* 0\.3 nats apart .*'mixer' .*No weight was changed"):
        step.whole()


def test_dropout_is_the_reason_once_and_not_looked_for_again() -> None:
    step = Step([0.5, 0.5], 0.0)
    step.whole()
    step.whole()
    assert step.asked == 1


def of_kind(kind: str, tokenizer_of: Path, folder: Path) -> Path:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, RwkvConfig

    torch.manual_seed(0)
    if kind == "rwkv":
        config: Any = RwkvConfig(vocab_size=400, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32)
    else:
        config = GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=2, n_positions=512)  # drops 10% by itself
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
            elif name.endswith("time_decay"):
                weight.fill_(-8.0)  # forgets slowly, so that padding far away still counts
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer_of).save_pretrained(folder)
    return folder


def train(model: Path, vowels: str, out: Path, head: str = "grpo") -> Any:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    tree = {
        "env": "gsm8k",
        "dataset": "embedded",
        "model": str(model),
        "rewards": [vowels],
        "out": str(out),
        "train": {"steps": 2, "prompts_per_step": 4, "group_size": 2, "micro_batch_size": 4, "lr": 1e-3, "head": head},
        "rollout": {"max_completion_length": 8},
        "evaluation": {"size": 0},
    }
    return start(parse_config(tree), Host.discover(), Silent())


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of kernels that are not installed
def test_a_model_that_sees_its_padding_is_trained_only_where_there_is_none(
    tiny_model: Path, vowels: str, tmp_path: Path
) -> None:
    model = of_kind("rwkv", tiny_model, tmp_path / "model")
    assert train(model, vowels, tmp_path / "right").status == "done"  # our head lays rows out without left padding
    with pytest.raises(RunError, match=r"step 1: .* 'rwkv' are not computed correctly in padded batches"):
        train(model, vowels, tmp_path / "wrong", head="trl")
    assert json.loads((tmp_path / "wrong" / "state.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_a_model_with_dropout_is_trained(tiny_model: Path, vowels: str, tmp_path: Path) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics

    run = train(of_kind("gpt2", tiny_model, tmp_path / "model"), vowels, tmp_path / "run")
    assert run.status == "done"
    assert max(row["sampling/sampling_logp_difference/mean"] for row in read_metrics(RunDir(run.path))) > 1e-3

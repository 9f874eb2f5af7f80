"""What a configuration names is found once, and a wrong name is said before anything is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.planning import decide, facts
from grpo.core.planning.decide import make_plan
from grpo.core.planning.facts import Facts, gather_facts, read_model
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"env": "gsm8"}, "no env 'gsm8'. Did you mean 'gsm8k'"),
        ({"env": "gsm8k", "rewards": ["proxmity"]}, "no reward 'proxmity'"),
        ({"env": "gsm8k", "model": "./nowhere"}, "there is no such folder"),
        ({"env": "gsm8k", "model": "no/such/folder"}, "there is no such folder"),
    ],
)
def test_a_wrong_name_is_said_before_rows_are_read(
    settings: dict[str, object], what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decide, "read_rows", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(UsageError, match=what):
        make_plan(parse_config(settings), Host.discover())


def test_several_environments_share_the_prompts_by_weight(facts_of: Callable[..., Facts]) -> None:
    both = facts_of({"one": 3.0, "other": 1.0})
    assert both.shares == (0.75, 0.25)
    assert facts_of().shares == (1.0,)


def test_processes_are_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    config, host = parse_config({"env": "gsm8k"}), Host.discover()
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert gather_facts(config, host).processes == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert gather_facts(config, host).processes == 4


def test_a_plan_reads_the_models_configuration_and_tokenizer_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    for name in ("load_model_config", "load_tokenizer"):
        real = getattr(facts, name)
        monkeypatch.setattr(facts, name, lambda *given, real=real, name=name: (read.append(name), real(*given))[1])
    monkeypatch.chdir(tmp_path)
    tree = {"env": ["gsm8k:dataset=embedded", "guess"], "model": str(tiny_model), "train": {"limit": 4, "steps": 1}}
    rollout = {"max_completion_length": 8, "max_turns": 2}
    plan = make_plan(parse_config(tree | {"rollout": rollout, "evaluation": {"size": 2}}), Host.discover())
    assert sorted(read) == ["load_model_config", "load_tokenizer"]
    assert plan.tokenizer.chat_template
    assert plan.model_config.vocab_size


def test_a_model_whose_positions_depend_on_the_batch_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": scaled}))
    with pytest.raises(UsageError, match="'dynamic' RoPE scaling"):
        read_model(str(folder))

"""Settings: a configuration with everything chosen, written under the same names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.config.settings import LossSettings, OutputSettings, RolloutSettings, Settings, TrainSettings, settle

KINDS: dict[str, type[Any]] = {
    "train": TrainSettings,
    "loss": LossSettings,
    "rollout": RolloutSettings,
    "output": OutputSettings,
}
CHOSEN: dict[str, dict[str, Any]] = {
    "train": {
        "steps": 3,
        "micro_batch_size": 4,
        "lr": 1e-5,
        "warmup_lr": 1e-4,
        "checkpointing": "none",
        "dtype": "float32",
    },
    "loss": {"rollout_correction": "none"},
    "rollout": {"max_completion_length": 16},
    "output": {"save_every": 20},
}


def settled(config: RunConfig, chosen: dict[str, dict[str, Any]]) -> Settings:
    sections = {name: settle(kind, getattr(config, name), **chosen.get(name, {})) for name, kind in KINDS.items()}
    return Settings(**dict(config) | sections)


def test_what_was_chosen_stands_under_the_names_of_the_configuration() -> None:
    config = parse_config({"env": ["gsm8k", {"name": "guess"}], "train": {"group_size": 4}, "lora": {"enabled": True}})
    chosen = settled(config, CHOSEN)
    assert (chosen.train.steps, chosen.train.group_size, chosen.output.save_every) == (3, 4, 20)
    assert chosen.lora == config.lora
    written = json.loads(json.dumps(chosen.model_dump(mode="json")))
    assert list(written) == list(config.model_dump())
    assert [list(section) for section in written.values() if isinstance(section, dict)] == [
        list(section) for section in config.model_dump().values() if isinstance(section, dict)
    ]
    assert parse_config(written).model_dump(mode="json") == written, "a run that resumes reads the same"
    assert settled(parse_config(written), CHOSEN) == chosen


@pytest.mark.parametrize("missing", CHOSEN)
def test_settings_with_a_value_that_nobody_chose_cannot_be_made(missing: str) -> None:
    chosen = {name: values for name, values in CHOSEN.items() if name != missing}
    with pytest.raises(ValidationError):
        settled(parse_config({"env": "gsm8k"}), chosen)


def test_settings_have_the_fields_of_the_configuration_and_no_others() -> None:
    for name, field in Settings.model_fields.items():
        section = RunConfig.model_fields[name].annotation
        if name in ("train", "loss", "rollout", "output"):
            assert list(field.annotation.model_fields) == list(section.model_fields)
    assert list(Settings.model_fields) == list(RunConfig.model_fields)


def test_a_rollout_of_one_turn_is_as_long_as_its_turn() -> None:
    once = RolloutSettings(max_completion_length=16)
    assert (once.turns, once.length) == (1, 16)
    several = RolloutSettings(max_completion_length=16, max_turns=3, max_rollout_length=90)
    assert (several.turns, several.length) == (3, 90)

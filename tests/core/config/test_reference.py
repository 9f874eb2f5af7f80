"""What is made of the settings is what they say today: the page's tables, and a schema that agrees with the checks."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grpo.core.config.reference import json_schema, with_tables
from grpo.core.config.schema import RunConfig, load_config, parse_config
from grpo.core.config.setting import settings_of
from grpo.plugins._spec.spec_text import TABLE_KEYS
from grpo.plugins.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")
ANEW = "write it anew with: make reference"
SCHEMA = Draft202012Validator(json_schema())


def test_the_page_has_every_setting_as_it_is_declared() -> None:
    assert with_tables(PAGE) == PAGE, ANEW
    assert re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE) == list(settings_of(RunConfig))


def test_a_table_that_is_out_of_date_is_written_anew_and_the_rest_is_kept() -> None:
    page = "Before.\n\n<!-- settings of [failures] -->\n| setting | default |\n|---|---|\n| `gone` | 1 |\n\nAfter.\n"
    written = with_tables(page)
    assert written.startswith("Before.\n\n<!-- settings of [failures] -->\n| setting | type | default | meaning |\n")
    assert written.endswith(" and names it. |\n\nAfter.\n")
    assert "gone" not in written
    assert with_tables(written) == written


def test_the_schema_beside_the_page_is_that_of_today() -> None:
    assert json.loads((DOCS / "configuration.schema.json").read_text(encoding="utf-8")) == json_schema(), ANEW


def test_the_schema_is_one_and_describes_every_setting() -> None:
    Draft202012Validator.check_schema(SCHEMA.schema)
    properties = SCHEMA.schema["properties"]
    for key, setting in settings_of(RunConfig).items():
        section, _, name = key.rpartition(".")
        field = (properties[section]["properties"] if section else properties)[name]
        assert field["description"], key
        assert "title" not in field, key
        assert field.get("default", setting.default) == json.loads(json.dumps(setting.default)), key
        if setting.default is None and not setting.required:
            assert "Left out: " in field["description"], key
    assert "Left out: 60 for the embedded model, else from epochs." in str(properties["train"]["properties"]["steps"])


def test_the_schema_takes_the_documented_examples_and_what_a_run_writes() -> None:
    for example in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
        SCHEMA.validate(tomllib.loads(example))
    SCHEMA.validate({})  # flags may name the rest
    for tree in ({"env": "gsm8k"}, {"env": ["a", {"name": "b", "weight": 2}], "lora": {"enabled": True, "bits": 4}}):
        SCHEMA.validate(parse_config(tree).model_dump(mode="json"))


@pytest.mark.parametrize(
    "pair",
    [
        "train.stps=1",
        "steps=1",
        "train.steps=0",
        "train.steps=1.5",
        "train.group_size=1",
        "train.lr=0",
        "train.dtype='int8'",
        "loss.type=3",
        "rollout.top_p=1.1",
        "rollout.min_p=1",
        "rollout.temperature=warm",
        "seed=4294967296",
        "env=[]",
        "env_rewards={gsm8k=[]}",
        "rewards=[3]",
        "lora={enabled=true, bits=8}",
        "output.report_to='wandb'",
        "output.report_to=['wndb']",
        "failures.stop_share=1.5",
        "canaries.file=3",
        "train=3",
    ],
)
def test_the_schema_refuses_what_the_checks_refuse(pair: str) -> None:
    with pytest.raises(UsageError):
        load_config(None, ["env=gsm8k", pair], {})
    assert not SCHEMA.is_valid(tree_of(pair))


def test_the_schema_knows_the_keys_of_a_plugins_table() -> None:
    for table in ({"weight": 2}, {"name": "length", "wieght": 2}, {"name": "length", "timeout": 0}):
        assert not SCHEMA.is_valid({"rewards": [table]})
    whole = {"name": "length", "weight": 2, "as": "l", "timeout": 3, "reads": "turn", "mcp": ["sh"]} | {
        "options": {"target": 5}
    }
    assert whole.keys() == set(TABLE_KEYS)
    SCHEMA.validate({"rewards": [whole], "env_rewards": {"gsm8k": [whole]}, "env": whole})


def tree_of(pair: str) -> dict[str, Any]:
    """The nested mapping of one pair."""
    key, _, text = pair.partition("=")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.split(".")
    tree = {last: value}
    for part in reversed(parents):
        tree = {part: tree}
    return tree

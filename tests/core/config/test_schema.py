"""The configuration: what wins, what is refused and in which words, and that the documented example is one."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grpo.core.config import schema
from grpo.core.config.schema import RunConfig, load_config, named_elsewhere, parse_config
from grpo.core.config.setting import settings_of
from grpo.core.run.begin import absolute_paths
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def refusal(*pairs: str, **flags: Any) -> str:
    with pytest.raises(UsageError) as error:
        load_config(None, pairs, {"env": "gsm8k", **flags})
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("train.stps=1", "train.steps"),
        ("steps=1", "train.steps"),
        ("loss.typ='grpo'", "loss.type"),
        ("trian.steps=1", "train"),
        ("rollout.max_completion_lenght=5", "rollout.max_completion_length"),
        ("rewrds=['a']", "rewards"),
        ("train.learningrate=1", "train.lr"),
        ("train.lerning_rate=1", "train.lr"),
        ("train.MicroBatchSize=1", "train.micro_batch_size"),
        ("rollout.temprature=1", "rollout.temperature"),
        ("num_generations=8", "train.group_size"),
        ("train.batch_size=4", "train.micro_batch_size"),
        ("train.kl_coef=0.1", "loss.beta"),
        ("rollout.max_new_tokens=9", "rollout.max_completion_length"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(written: str, meant: str) -> None:
    message = refusal(written)
    unknown = written.split("=")[0] if meant != "train" else "trian"
    assert f"unknown setting '{unknown}'" in message
    assert f"Did you mean '{meant}'?" in message
    assert "docs/configuration.md" in message


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("train.steps=-1", "train.steps: input should be greater than or equal to 1, not -1"),
        ("train.steps=1.5", "train.steps: input should be a valid integer, not 1.5"),
        ("train.steps=", "train.steps: input should be a valid integer, not ''"),
        ("lora=true", "lora is a section of settings. Write lora.enabled, or another setting of it"),
        ("rewards=proximity", "rewards: input should be a list, not 'proximity'. Write [\"proximity\"]"),
        ("output.tags=a, b", 'output.tags: input should be a list, not \'a, b\'. Write ["a", "b"]'),
        ("rewards=code:show=1,weight=2", 'Write ["code:show=1,weight=2"]'),
        ("train.group_size=1", "train.group_size: input should be greater than or equal to 2, not 1"),
        ("train.epochs=0", "train.epochs: input should be greater than 0"),
        ("train.lr=0", "train.lr: input should be greater than 0"),
        ("train.lr=nan", "train.lr: input should be a finite number"),
        ("train.lr=inf", "train.lr: input should be a finite number"),
        ("train.limit=0", "train.limit"),
        ("train.dtype='int8'", "train.dtype: input should be 'float32', 'bfloat16' or 'float16', not 'int8'"),
        ("seed=-1", "seed: input should be greater than or equal to 0"),
        ("loss.type=3", "loss.type: input should be a valid string, not 3"),
        ("loss.advantage=true", "loss"),
        ("loss.beta=-0.1", "loss.beta: input should be greater than or equal to 0"),
        ("loss.num_iterations=0", "loss.num_iterations"),
        ("train.head=other", "train.head: input should be 'grpo' or 'trl'"),
        ("rollout.temperature=0", "rollout.temperature: input should be greater than 0"),
        ("rollout.temperature=warm", "rollout.temperature: input should be a valid number"),
        ("rollout.top_p=1.1", "rollout.top_p: input should be less than or equal to 1"),
        ("rollout.min_p=1", "rollout.min_p: input should be less than 1"),
        ("failures.stop_share=1.5", "failures.stop_share"),
        ("output.keep=1", "output.keep: input should be greater than or equal to 2"),
        ("output.report_to='wandb'", "output.report_to: input should be a list, not 'wandb'"),
        (
            "output.report_to=['wndb']",
            "output.report_to.0: input should be 'wandb', 'tensorboard'",
        ),
        ("lora.targets=5", "lora.targets: input should be a list, not 5"),
        ("rewards=[3]", "rewards.0: input should be a valid string, not 3"),
        ("train=3", "train: input should be a valid table, not 3"),
        ("out=7", "out: input is not a path, not 7"),
        ("train.steps=true", "train: steps is True, and it is not a setting that is true or false"),
        ("loss.beta.high=1", "loss.beta: input should be a valid number"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(pair: str, says: str) -> None:
    assert says in refusal(pair)


def test_each_wrong_setting_is_complained_about_once() -> None:
    message = refusal("lora.targets=5", "train.steps=-1")
    assert message.count("lora.targets") == 1
    assert message.count("train.steps") == 1


def test_adapter_settings_without_an_adapter_are_refused_and_not_ignored() -> None:
    assert "rank would do nothing without an adapter. Add --lora" in refusal("lora.rank=4")
    assert "bits would do nothing" in refusal(**{"lora.bits": 4})
    assert load_config(None, ["lora.rank=4"], {"env": "gsm8k", "lora.enabled": True}).lora.rank == 4


@pytest.mark.parametrize(
    ("key", "meant"),
    [("lr", "train.lr"), ("--lr", "train.lr"), ("group-size", "train.group_size"), ("train.rank", "lora.rank")],
)
def test_a_setting_by_its_last_name_or_its_flag_is_told_its_whole_key(key: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in refusal(f"{key}=1")


def test_a_name_of_another_trainer_is_that_of_a_setting_and_not_one_itself() -> None:
    settings = settings_of(RunConfig)
    for key, names in schema._ELSEWHERE.items():
        assert key in settings
        assert [named_elsewhere(name) for name in names.split()] == [key] * len(names.split())
        assert not {f"{key.rpartition('.')[0]}.{name}" for name in names.split()} & {*settings}


@pytest.mark.parametrize("key", ["train.lr", "train.warmup_lr"])
def test_a_learning_rate_beyond_one_is_a_slip(key: str) -> None:
    assert f"{key}: input should be less than or equal to 1, not 1000" in refusal(f"{key}=1000")


def test_without_an_environment_the_message_says_how_to_name_one() -> None:
    for flags in ({}, {"env": None}, {"env": ""}):
        with pytest.raises(UsageError, match=r"no environment.*--env gsm8k.*grpo plugins"):
            load_config(None, [], flags)


@pytest.mark.parametrize("pair", ["loss.beta", "=1", ""])
def test_a_pair_without_a_key_or_a_value_is_refused(pair: str) -> None:
    assert "write it as key=value" in refusal(pair)


def test_a_pair_without_a_value_is_answered_with_its_own_setting() -> None:
    assert refusal("train.steps").endswith("for example --set train.steps=100")
    assert refusal("loss.beta").endswith("for example --set loss.beta=VALUE")


def test_a_section_cannot_hang_below_a_value() -> None:
    assert "'seed' is a value, not a section" in refusal("seed=1", "seed.x=1")


def test_a_flag_of_zero_counts_and_one_that_is_not_given_does_not() -> None:
    config = load_config(None, ["seed=3", "evaluation.size=5"], {"env": "gsm8k", "seed": 0, "evaluation.size": None})
    assert (config.seed, config.evaluation.size) == (0, 5)


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_flags_win_over_pairs_and_pairs_over_the_file(kind: str, tmp_path: Path) -> None:
    tree = {"env": "from-file", "seed": 1, "train": {"steps": 1, "lr": 0.5}, "loss": {"beta": 0.25}}
    toml = 'env = "from-file"\nseed = 1\n[train]\nsteps = 1\nlr = 0.5\n[loss]\nbeta = 0.25\n'
    file = tmp_path / f"run.{kind}"
    file.write_text(toml if kind == "toml" else json.dumps(tree))
    config = load_config(
        file, ["train.steps=2", "seed=2", "seed=3"], {"train.steps": 4, "train.lr": None, "env": "gsm8k"}
    )
    assert (config.env, config.seed, config.train.steps, config.train.lr, config.loss.beta) == (
        "gsm8k",
        3,
        4,
        0.5,
        0.25,
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.toml", "env = ", "not valid TOML"),
        ("a.toml", "env = gsm8k", 'Texts need quotes, as in env = "gsm8k"'),
        ("a.yaml", "env: gsm8k", "a configuration is a TOML file, or JSON in a file named .*, and not YAML"),
        ("a.toml", "env = 'x'\nenv = 'y'\n", "not valid TOML"),
        ("a.json", '{"env": ', "not valid JSON"),
        ("a.json", '["env"]', "must hold a table of settings, not list"),
        ("a.toml", b"env = '\xff'", "not valid TOML"),
    ],
)
def test_a_broken_file_is_named(name: str, content: str | bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=f"{name}.*{says}|{says}.*{name}"):
        load_config(file, [], {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the configuration .*none\.toml: No such file"):
        load_config(tmp_path / "none.toml", [], {})


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("model=org/name#1", "org/name#1"),
        ("model='quoted'", "quoted"),
        ("env=gsm8k:level=hard", "gsm8k:level=hard"),
        ("env={name='gsm8k', options={level='hard'}}", {"name": "gsm8k", "options": {"level": "hard"}}),
        ("rewards=['a', 'b:weight=2']", ("a", "b:weight=2")),
        ("train.lr=3e-5", 3e-5),
        ("lora.enabled=true", True),
    ],
)
def test_the_value_of_a_pair_is_toml_or_bare_text(pair: str, value: object) -> None:
    config = load_config(None, ["env=gsm8k", pair], {})
    section: Any = config
    for part in pair.partition("=")[0].split("."):
        section = getattr(section, part)
    assert section == value


def test_a_written_configuration_reads_back_equal() -> None:
    config = parse_config(
        {
            "env": {"name": "gsm8k", "options": {"level": "hard"}},
            "rewards": ["proximity:weight=2", {"name": "format", "weight": 0.5}],
            "out": "runs/x",
            "train": {"steps": 3, "lr": 1e-5},
            "lora": {"enabled": True, "targets": ["q_proj"], "alpha": 8},
            "output": {"report_to": ["tensorboard"]},
        }
    )
    written = json.loads(json.dumps(config.model_dump(mode="json")))
    assert parse_config(written) == config
    assert parse_config(parse_config({"env": "gsm8k"}).model_dump(mode="json")) == parse_config({"env": "gsm8k"})


def test_the_documented_example_is_a_configuration() -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        config = parse_config(tomllib.loads(example))
        host = Host.discover()
        assert not isinstance(config.env, tuple)
        assert host.env(config.env)
        assert len(host.rewards(config.rewards)) == len(config.rewards)


def test_relative_paths_become_absolute_so_that_a_run_resumes_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "mine.py").touch()
    config = absolute_paths(
        parse_config(
            {
                "env": "gsm8k:level=hard",
                "rewards": ["./mine.py:near:scale=2", {"name": "mine.py:near", "as": "two"}, "proximity"],
                "model": "model",
                "dataset": "rows.jsonl",
            }
        )
    )
    assert config.env == "gsm8k:level=hard"
    file = tmp_path / "mine.py"
    assert config.rewards == (f"{file}:near:scale=2", {"name": f"{file}:near", "as": "two"}, "proximity")
    assert absolute_paths(parse_config({"env": "gsm8k", "agent": "python:mine.py:run"})).agent == f"python:{file}:run"
    assert (config.model, config.dataset) == (str(tmp_path / "model"), str(tmp_path / "rows.jsonl"))
    (tmp_path / "games.py").write_text("")
    several = absolute_paths(
        parse_config({"env": ["trl:./games.py:Door:size=3", "gsm8k"], "env_rewards": {"gsm8k": ["length"]}})
    )
    assert several.env == (f"trl:{tmp_path}/games.py:Door:size=3", "gsm8k")
    hub = absolute_paths(parse_config({"env": "gsm8k", "model": "Qwen/Qwen2.5-0.5B", "dataset": "openai/gsm8k"}))
    assert (hub.model, hub.dataset) == ("Qwen/Qwen2.5-0.5B", "openai/gsm8k")


def test_a_data_set_without_an_environment_is_one_of_rows() -> None:
    assert parse_config({"dataset": "my.csv"}).env == "rows"
    with pytest.raises(UsageError, match="no environment"):
        parse_config({"model": "some"})

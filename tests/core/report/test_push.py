"""`grpo push` by the real client of the hub, against a stand-in of its HTTP API; and what the card says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_api import Hub, running

from grpo.core.config.schema import load_config
from grpo.core.record.run_dir import read_json
from grpo.core.report.alarms import Alarm
from grpo.core.report.card import CardFacts, card_of
from grpo.core.report.push import refuse_bad_repository
from grpo.core.report.unnamed import without_folders
from grpo.plugins.errors import UsageError

NAME = "me/my-model"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        yield hub


def pushed(hub: Hub, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_TOKEN": hub.token,
        "HF_HUB_DISABLE_XET": "1",  # the stand-in has no store of chunks, so large files go the older way
        **variables,
    }
    command = [sys.executable, "-m", "grpo", "push", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


@pytest.mark.slow
def test_a_run_arrives_with_its_model_a_card_and_the_report(full_run: Path, hub: Hub, tmp_path: Path) -> None:
    done = pushed(hub, tmp_path, str(full_run), NAME, "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{hub.url}/{NAME}/commit/0123456"
    assert "report.html holds" in done.stdout
    files = hub.files[f"{NAME}@main"]
    assert {"README.md", "report.html", "config.json", "model.safetensors", "tokenizer.json"} <= files.keys()
    assert files["model.safetensors"] == (full_run / "model" / "model.safetensors").read_bytes()
    assert not {"complete.json", "optimizer.pt"} & files.keys()
    assert hub.private == [NAME]
    assert sum("/commit/" in one for one in hub.asked) == 1
    for name in ("README.md", "report.html"):  # nobody learns where the run stood
        assert str(full_run.parent).encode() not in files[name]
        assert str(Path.home()).encode() + b"/" not in files[name]
    assert b"| reward | `vowels` | 1 |" in files["README.md"]
    (tmp_path / "run.json").write_bytes(files["run.json"])
    again, before = load_config(tmp_path / "run.json", [], {}), read_json(full_run / "config.json")
    assert again.train.steps == before["train"]["steps"]
    assert again.loss.type.name == before["loss"]["type"]


@pytest.mark.slow
def test_an_adapter_whose_base_no_hub_has_goes_up_merged_and_loads(lora_run: Path, hub: Hub, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    done = pushed(hub, tmp_path, str(lora_run), NAME, "--branch", "second", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "with the adapter added" in done.stdout
    assert f"POST /api/models/{NAME}/branch/second" in hub.asked
    files = hub.files[f"{NAME}@second"]
    assert "report.html" not in files
    assert "adapter_config.json" not in files
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "status", "words"),
    [
        ("/api/repos/create", 403, "The token may not write there"),
        ("/commit/", 409, "was changed meanwhile"),
        ("/preupload/", 429, "wait some minutes"),
    ],
)
def test_what_the_hub_refuses_is_explained_and_nothing_is_committed(
    full_run: Path, hub: Hub, tmp_path: Path, part: str, status: int, words: str
) -> None:
    hub.answers[part] = status
    done = pushed(hub, tmp_path, str(full_run), NAME, "--no-report")
    assert done.returncode == 1
    assert f"the hub answered {status}: " in done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not hub.files


@pytest.mark.slow
def test_no_token_and_no_hub_are_said(full_run: Path, hub: Hub, tmp_path: Path) -> None:
    for variables, words in (({"HF_TOKEN": "hf_other"}, "hf auth login"), ({"HF_TOKEN": ""}, "hf auth login")):
        done = pushed(hub, tmp_path, str(full_run), NAME, "--no-report", **variables)
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (1, True, False), done.stderr
    done = pushed(hub, tmp_path, str(full_run), NAME, "--no-report", HF_ENDPOINT="http://127.0.0.1:9")
    assert (done.returncode, "Check the network" in done.stderr) == (1, True), done.stderr


@pytest.mark.slow
def test_a_dry_run_writes_the_folder_and_asks_nobody(full_run: Path, hub: Hub, tmp_path: Path) -> None:
    done = pushed(hub, tmp_path, str(full_run), NAME, "--dry-run", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert hub.asked == []
    assert (tmp_path / "out" / "README.md").is_file()
    again = pushed(hub, tmp_path, str(full_run), NAME, "--dry-run", str(tmp_path / "out"))
    assert "nothing is overwritten" in again.stderr


@pytest.mark.slow
def test_a_run_without_weights_is_refused(full_run: Path, hub: Hub, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(full_run, bare, ignore=shutil.ignore_patterns("model", "checkpoints"))
    done = pushed(hub, tmp_path, str(bare), NAME)
    assert done.returncode == 2
    assert hub.asked == []


@pytest.mark.parametrize("name", ["mine", "me/my model", "me/../x", "me/a/b", "/me/a", "me/" + "a" * 100, ""])
def test_what_is_no_name_of_a_repository_is_refused_before_anything_else(name: str) -> None:
    with pytest.raises(UsageError, match=r"is no name of a repository.*OWNER/NAME"):
        refuse_bad_repository(name)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/home/ann/rewards/near.py:near", "near.py:near"),
        ("../mine/near.py:near", "near.py:near"),
        ("rows:dataset=/data/secret team/my.jsonl,prompt=question", "rows:dataset=my.jsonl,prompt=question"),
        ("~/models/big", "big"),
        (r"C:\Users\ann\near.py:near", "near.py:near"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("http://127.0.0.1:8271", "http://127.0.0.1:8271"),
        ("arithmetic:lowest=1,highest=2", "arithmetic:lowest=1,highest=2"),
    ],
)
def test_folders_are_taken_out_of_settings_and_names_of_the_hub_are_not(given: str, shown: str) -> None:
    assert without_folders({"env": [given]}) == {"env": [shown]}


def facts(**changed: Any) -> CardFacts:
    config = {
        "env": "gsm8k",
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "seed": 3,
        "rewards": ["/home/ann/near.py:near"],
        "lora": {"enabled": True, "rank": 16, "targets": "all-linear"},
        "train": {"steps": 20, "lr": 1e-4},
        "loss": {"type": "dapo", "advantage": "group_mean"},
    }
    reward = {"kind": "reward", "plugin": "near", "version": 2, "distribution": "acme|x", "distribution_version": "1.0"}
    given: dict[str, Any] = {
        "name": "run <b>1</b>",
        "base": "Qwen/Qwen2.5-0.5B-Instruct",
        "form": "adapter",
        "step": 20,
        "final": True,
        "config": config,
        "versions": {"libraries": {"torch": "2.13.0"}, "plugins": {"reward near": {**reward, "weight": 1.0}}},
        "metrics": [
            {"step": 0, "held_out/accuracy": 0.08, "held_out/accuracy_low": 0.05, "held_out/accuracy_high": 0.126},
            {"step": 20, "reward": 0.5, "held_out/accuracy": 0.575},
        ],
        "alarms": [],
        "report": "report.html",
    }
    return CardFacts(**given | changed)


def test_the_card_says_what_was_trained_on_what_with_which_result() -> None:
    import yaml

    card = card_of(facts())
    _, front, body = card.split("---\n", 2)
    data = yaml.safe_load(front)
    assert data["base_model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert data["library_name"] == "peft"
    assert "| after 0 steps | 8.0% | 5.0% to 12.6% |" in body
    assert "| after 20 steps | 57.5% |  |" in body
    assert "| reward | `near` | 2 | acme\\|x 1.0 | 1 |" in body
    assert "/home/ann" not in card
    assert "<b>" not in body
    assert "gave no alarm" in body


def test_alarms_are_on_the_card_and_words_of_a_policy_are_not() -> None:
    alarms = [Alarm(7, "hacking", "pays <script> for everything"), Alarm(9, "failure", "x", reward="ne|ar")]
    card = card_of(facts(alarms=alarms, final=False, step=15))
    assert "- hacking: 1 time, first in step 7" in card
    assert "ne\\|ar" in card
    assert "<script>" not in card
    assert "not over, these are the weights after step 15" in card


def test_a_base_that_no_hub_has_is_not_claimed() -> None:
    config = json.loads(json.dumps(facts().config)) | {"model": "/home/ann/models/mine"}
    card = card_of(facts(base=None, form="merged", config=config))
    assert "base_model" not in card
    assert "`mine`, a folder" in card

"""`grpo push` with the library of the hub against a stand-in of its HTTP API: what arrives, and what goes wrong."""

from __future__ import annotations

import base64
import getpass
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hub_stand_in import TOKEN, Hub, Repo, hub_stand_in
from made_run import failed, made_run
from safetensors.numpy import load, save_file

from grpo.core.cli.main import cli
from grpo.core.record.run_dir import RunDir
from grpo.plugins.errors import RunError, UsageError

HOSTILE = "</code><script>alert(1)</script> | `[x](http://evil.example)` \x1b[31m\u202e ignore everything"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_stand_in() as served:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", served.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


def blocks_of(page: bytes) -> dict[str, bytes]:
    """Returns what a report holds, its summary first."""
    found = re.findall(r'octet-stream" id="([\w-]+)">([^<]*)</script>', page.decode())
    return {name: zlib.decompress(base64.b64decode(block)) for name, block in found}


def push(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["push", *map(str, arguments)])


def pushed(*arguments: str | Path) -> Result:
    result = push(*arguments)
    assert result.exit_code == 0, result.exception
    return result


def refused(kind: type[Exception], *arguments: str | Path) -> str:
    result = push(*arguments)
    assert type(result.exception) is kind, result.exception
    return str(result.exception)


def with_model(run: RunDir, **settings: object) -> Path:
    """Gives a made run a model of one weight, an adapter where its settings say so."""
    run.model.mkdir()
    adapter = "peft_type" in settings
    weights = run.model / ("adapter_model.safetensors" if adapter else "model.safetensors")
    save_file({"w": np.arange(500, dtype=np.float32)}, weights)
    file = run.model / ("adapter_config.json" if adapter else "config.json")
    file.write_text(json.dumps({"_name_or_path": "/home/ann/models/x", **settings}), "utf-8")
    (run.model / "README.md").write_text("of the trainer", "utf-8")
    return run.path


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A made run of all weights of a model of the hub, with a reward of a file."""
    run = made_run(
        tmp_path / "run",
        model="acme/base-1B",
        rewards=["/home/ann/secret-project/mine.py:near"],
        env="rows:dataset=/home/ann/rows.jsonl",
        out="/home/ann/runs/first",
        output={"project": "merger", "save_every": 1},
        rollout={"server_url": "http://10.1.2.3:8271"},
    )
    lock = {"kind": "reward", "name": "near", "version": 7, "distribution": "/home/ann/secret-project/mine.py"}
    judge = {"kind": "reward", "name": HOSTILE, "version": 2, "distribution": "judges", "distribution_version": "1.4"}
    env = {"kind": "env", "name": "rows", "options": {"dataset": "acme/questions"}}
    versions = {"libraries": {"grpo-kit": "0.1.0"}, "plugins": {"reward near": lock, "j": judge, "env": env}}
    run.versions.write_text(json.dumps(versions), "utf-8")
    return with_model(run, model_type="qwen2")


def test_model_card_settings_and_report_arrive_as_one_commit(full: Path, hub: Hub) -> None:
    result = pushed(full, "ann/sums", "--message", "first")
    files = hub.files("ann/sums")
    assert set(files) - {".gitattributes"} == {
        "README.md",
        "config.json",
        "grpo_config.json",
        "model.safetensors",
        "report.html",
    }
    assert files["model.safetensors"] == (full / "model" / "model.safetensors").read_bytes()
    assert load(files["model.safetensors"])["w"].tolist() == list(range(500))
    assert json.loads(files["config.json"]) == {"model_type": "qwen2"}
    assert hub.repos["ann/sums"].messages == ["first"]
    assert not hub.repos["ann/sums"].private
    assert f"pushed to {hub.url}/ann/sums" in result.stdout
    assert "prompts and completions of 24 rollouts; --no-report leaves it out" in result.stderr
    assert not list(full.glob(".push-*"))


def test_the_card_says_what_was_trained_on_which_versions_with_which_result(full: Path, hub: Hub) -> None:
    pushed(full, "sums", "--private")
    card = hub.files("ann/sums")["README.md"].decode()
    head = card.split("---")[1]
    assert json.loads(head.split("base_model: ")[1].splitlines()[0]) == "acme/base-1B"
    assert 'datasets: ["acme/questions"]' in head
    assert 'library_name: "transformers"' in head
    assert "| `reward` | `near` | `7` |" in card
    assert "`judges 1.4`" in card
    assert "| after 0 steps | 40.0% | 35.0% to 45.0% | 200, 118 different |" in card
    assert "| after 3 steps | 90.0% | 85.0% to 95.0% | 200, 118 different |" in card
    assert "| `train.lr` | `3e-05` |" in card
    assert "pip install grpo-kit==0.1.0" in card
    assert hub.repos["ann/sums"].private


def test_nothing_of_the_machine_leaves_it(full: Path, hub: Hub) -> None:
    pushed(full, "ann/sums", "--no-report")
    for name, data in hub.files("ann/sums").items():
        for private in ("/home", "secret-project", "merger", "10.1.2.3", str(full.parent), TOKEN):
            assert private.encode() not in data, (name, private)
    settings = json.loads(hub.files("ann/sums")["grpo_config.json"])
    assert settings["rewards"] == ["mine.py:near"]
    assert settings["env"] == "rows:dataset=rows.jsonl"
    assert settings["model"] == "acme/base-1B"
    assert "out" not in settings


def test_the_report_says_no_more_of_the_machine_than_the_settings(tmp_path: Path, hub: Hub) -> None:
    run = made_run(
        tmp_path / "PLANT-run",
        change=lambda row, number: failed(row, "Authorization: Bearer PLANT-1234") if number == 0 else row,
        out="runs/PLANT-out",
        dataset="data/PLANT-client/rows.jsonl",
        rollout={"server_url": "http://PLANT-host.corp:8271", "temperature": 0.5},
        output={"project": "PLANT", "run_name": "PLANT", "run_group": "PLANT", "tags": ["PLANT"]},
    )
    lock = {"kind": "env", "name": "x", "version": 3, "options": {"header": "Bearer PLANT-1234"}, "host": "PLANT"}
    versions = {
        "libraries": {"torch": "2.13.0+cpu", "numpy": "PLANT"},
        "plugins": {"x": lock, "y": []},
        "host": "PLANT",
    }
    run.versions.write_text(json.dumps(versions), "utf-8")
    run.state.write_text(json.dumps({"status": "on PLANT", "step": 3}), "utf-8")
    pushed(run.path, "ann/sums", "--no-model")
    files = hub.files("ann/sums")
    summary, *rest = blocks_of(files["report.html"]).values()
    for name, data in {**files, "summary": summary, "rollouts": b"".join(rest)}.items():
        assert b"PLANT" not in data, name
    [shown] = json.loads(summary)["runs"]
    assert shown["config"] == json.loads(files["grpo_config.json"])
    assert shown["config"]["dataset"] == "rows.jsonl"
    assert shown["config"]["rollout"] == {"temperature": 0.5}
    assert shown["versions"]["libraries"] == {"torch": "2.13.0+cpu"}
    assert shown["versions"]["plugins"]["x"]["version"] == 3
    assert shown["status"] == "unknown"


@pytest.mark.parametrize("place", ["versions.json", "model/chat_template.jinja", "rollouts"])
def test_a_file_of_the_run_that_is_a_link_out_of_it_is_not_published(
    full: Path, hub: Hub, tmp_path: Path, place: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (full / place).rename(elsewhere) if (full / place).exists() else elsewhere.write_text("secret")
    (full / place).symlink_to(elsewhere)
    message = refused(UsageError, full, "ann/sums")
    assert f"{full / place} is a link out of the run directory, to {elsewhere}" in message
    assert hub.requests == []


def test_a_link_that_stays_in_the_run_is_no_hindrance(full: Path, hub: Hub) -> None:
    (full / "versions.json").rename(full / "kept.json")
    (full / "versions.json").symlink_to("kept.json")
    pushed(full, "ann/sums", "--no-report")
    assert {"README.md", "model.safetensors"} <= set(hub.files("ann/sums"))


def test_texts_of_plugins_and_policies_are_no_markup_in_the_card(tmp_path: Path, hub: Hub) -> None:
    run = made_run(
        tmp_path / "run",
        model="acme/base-1B",
        change=lambda row, number: (
            failed(row, f"boom: {HOSTILE}") if number == 0 else replace(row, completion=f"{HOSTILE} {number}")
        ),
    )
    versions = json.loads(run.versions.read_text("utf-8"))
    versions["plugins"]["x"] = {"kind": "reward", "name": HOSTILE, "distribution": HOSTILE, "options": {}}
    run.versions.write_text(json.dumps(versions), "utf-8")
    pushed(run.path, "ann/sums", "--no-model")
    card = hub.files("ann/sums")["README.md"].decode()
    assert "`proximity` failed on rollouts" in card
    for bad in ("<", "\x1b", "\u202e", "`[", "boom", "evil.example)`"):
        assert bad not in card, bad
    for line in card.splitlines():
        assert line.count("`") % 2 == 0
    rows = [line for line in card.splitlines() if "alert" in line and line.startswith("|")]
    assert {line.count("|") for line in rows} == {6}


def test_status_and_numbers_of_a_foreign_record_are_no_markup_in_the_card(full: Path, hub: Hub) -> None:
    settings = json.loads((full / "config.json").read_text("utf-8"))
    settings["train"] |= {"dtype": HOSTILE, "lr": HOSTILE}
    settings |= {"seed": HOSTILE, "lora": [HOSTILE], "loss": HOSTILE}
    (full / "config.json").write_text(json.dumps(settings), "utf-8")
    (full / "state.json").write_text(json.dumps({"status": HOSTILE, "step": HOSTILE}), "utf-8")
    pushed(full, "ann/sums", "--no-model", "--no-report")
    card = hub.files("ann/sums")["README.md"].decode()
    assert "It was trained for 3 steps, seed 0. The run is not over: unknown." in card
    for bad in ("<", "\x1b", "\u202e", "`["):
        assert bad not in card, bad
    for line in card.splitlines():
        assert line.count("`") % 2 == 0
        assert "evil.example" not in line or line.startswith("| `")


@pytest.mark.parametrize("versions", [[], [1], "x", {"plugins": [], "libraries": []}, {"plugins": {"a": 1}}])
def test_versions_that_are_none_are_an_empty_record(full: Path, hub: Hub, versions: object) -> None:
    (full / "versions.json").write_text(json.dumps(versions), "utf-8")
    pushed(full, "ann/sums", "--no-model")
    assert "pip install grpo-kit\n" in hub.files("ann/sums")["README.md"].decode()


def test_an_adapter_goes_as_it_is_where_its_base_is_on_the_hub(tmp_path: Path, hub: Hub) -> None:
    run = made_run(tmp_path / "run", model="acme/base-1B", lora={"enabled": True, "rank": 4})
    with_model(run, peft_type="LORA", base_model_name_or_path="/root/.cache/base", r=4)
    pushed(run.path, "ann/sums", "--no-report")
    files = hub.files("ann/sums")
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == "acme/base-1B"
    assert load(files["adapter_model.safetensors"])["w"].size == 500
    card = files["README.md"].decode()
    assert 'library_name: "peft"' in card
    assert 'base_model_relation: "adapter"' in card
    assert "report.html" not in files
    assert "model.safetensors" not in files


@pytest.mark.slow
def test_an_adapter_of_a_local_base_becomes_a_whole_model(lora_run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    result = pushed(lora_run, "ann/sums", "--dry-run", tmp_path / "hub")
    assert "the base model is not on the hub, so its adapter was added to it as a whole model" in result.stderr
    AutoModelForCausalLM.from_pretrained(tmp_path / "hub")
    AutoTokenizer.from_pretrained(tmp_path / "hub")
    assert not (tmp_path / "hub" / "adapter_config.json").exists()
    card = (tmp_path / "hub" / "README.md").read_text("utf-8")
    assert "base_model:" not in card
    assert "name yours with `--model`" in card
    for file in (tmp_path / "hub").glob("*.json"):
        assert str(tmp_path.parent) not in file.read_text("utf-8"), file
    assert json.loads((tmp_path / "hub" / "grpo_config.json").read_text("utf-8"))["model"] == "./base-model"


def test_what_would_be_pushed_is_written_without_a_network_or_a_token(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    result = pushed(full, "ann/sums", "--dry-run", tmp_path / "hub")
    assert "    model.safetensors  " in result.stdout
    assert "5 files, " in result.stdout
    assert (tmp_path / "hub" / "README.md").is_file()
    assert "is not empty" in refused(UsageError, full, "ann/sums", "--dry-run", tmp_path / "hub")


def test_the_settings_start_a_run_elsewhere(full: Path, tmp_path: Path) -> None:
    from grpo.core.config.schema import load_config

    pushed(full, "ann/sums", "--dry-run", tmp_path / "hub", "--no-report")
    config = load_config(tmp_path / "hub" / "grpo_config.json", [], {})
    assert config.model == "acme/base-1B"
    assert config.train.lr == 3e-05


def test_an_upload_that_was_cut_is_completed_and_sends_nothing_twice(full: Path, hub: Hub) -> None:
    hub.fails["/commit/"] = (500, "out of order")
    assert "(HTTP 500)" in refused(RunError, full, "ann/sums")
    assert "model.safetensors" not in hub.files("ann/sums")
    assert len(hub.uploads) == 1
    hub.fails.clear()
    pushed(full, "ann/sums")
    assert "model.safetensors" in hub.files("ann/sums")
    assert len(hub.uploads) == 1
    assert "has all of it already" in pushed(full, "ann/sums").stdout
    assert len(hub.repos["ann/sums"].messages) == 1


def test_a_commit_of_somebody_else_meanwhile_is_not_written_over(full: Path, hub: Hub) -> None:
    def other() -> None:
        hub.repos["ann/sums"].branches["main"]["README.md"] = b"theirs"

    hub.before_commit = other
    message = refused(RunError, full, "ann/sums")
    assert "somebody else has changed it meanwhile" in message
    assert hub.files("ann/sums")["README.md"] == b"theirs"


def test_files_of_others_stay_and_those_replaced_are_named(full: Path, hub: Hub) -> None:
    hub.repos["ann/sums"] = Repo()
    hub.files("ann/sums").update({"README.md": b"theirs", "notes.txt": b"notes"})
    result = pushed(full, "ann/sums", "--no-report")
    assert "were replaced: README.md" in result.stderr
    assert "are not of this run: notes.txt" in result.stderr
    assert hub.files("ann/sums")["notes.txt"] == b"notes"


def test_a_branch_is_made_and_main_stays(full: Path, hub: Hub) -> None:
    result = pushed(full, "ann/sums", "--branch", "step-3", "--no-report")
    assert set(hub.files("ann/sums")) == {".gitattributes"}
    assert "model.safetensors" in hub.files("ann/sums", "step-3")
    assert "/tree/step-3" in result.stdout
    pushed(full, "ann/sums", "--branch", "step-3")


def test_private_is_not_pushed_to_what_is_public(full: Path, hub: Hub) -> None:
    hub.repos["ann/sums"] = Repo(private=False)
    assert "is there already and is public" in refused(RunError, full, "ann/sums", "--private")
    assert set(hub.files("ann/sums")) == {".gitattributes"}
    assert hub.uploads == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not accept the token. Log in with: hf auth login, or set HF_TOKEN"),
        (403, "the token may not write there"),
        (404, "it does not exist"),
        (429, "too many requests. Wait some minutes"),
        (503, "the hub has a failure"),
    ],
)
def test_each_error_of_the_hub_is_a_line_with_what_to_do(full: Path, hub: Hub, status: int, words: str) -> None:
    hub.fails["/api/repos/create"] = (status, "\x1b[31mno\x1b[0m")
    hub.fails["/api/models"] = (status, "no")
    message = refused(RunError, full, "ann/sums", "--no-model", "--no-report")
    assert message.startswith("cannot push to ann/sums: ")
    assert words in message
    assert f"(HTTP {status})" in message
    assert "\x1b" not in message
    assert "\n" not in message
    assert TOKEN not in message


def test_a_hub_that_nobody_reaches_is_a_line(full: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "no answer from http://127.0.0.1:9" in refused(RunError, full, "ann/sums", "--no-model", "--no-report")


@pytest.mark.parametrize("name", ["a/b/c", "ann/..", "ann/x--y", "ann/x.git", "ann/ x", "", "datasets/ann/x"])
def test_names_that_no_repository_has_are_refused_before_any_request(full: Path, hub: Hub, name: str) -> None:
    assert "Name the repository as OWNER/NAME" in refused(UsageError, full, name)
    assert hub.requests == []


def test_what_cannot_work_is_refused_before_any_request(
    full: Path, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not a run directory" in refused(UsageError, tmp_path, "ann/sums")
    assert "name of a branch" in refused(UsageError, full, "ann/sums", "--revision", "a..b")
    assert "--message is empty" in refused(UsageError, full, "ann/sums", "--message", " ")
    shutil.rmtree(full / "model")
    message = refused(UsageError, full, "ann/sums")
    assert "grpo run --resume" in message
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "hf auth login" in refused(UsageError, full, "ann/sums", "--no-model")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in refused(UsageError, full, "ann/sums", "--no-model")
    assert hub.requests == []


@pytest.mark.slow
def test_a_process_of_its_own_pushes_a_real_run(full_run: Path, hub: Hub, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "grpo", "push", str(full_run), "ann/real"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment})
    assert done.returncode == 0, done.stderr
    got = tmp_path / "got"
    got.mkdir()
    for name, data in hub.files("ann/real").items():
        (got / name).write_bytes(data)
    AutoModelForCausalLM.from_pretrained(got)
    assert (got / "model.safetensors").read_bytes() == (full_run / "model" / "model.safetensors").read_bytes()
    card = (got / "README.md").read_text("utf-8")
    assert str(full_run.parent) not in card
    assert f"/{getpass.getuser()}/" not in card

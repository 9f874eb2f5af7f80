"""The record of a run's plugins is stable, survives JSON, and shows what changed."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo.plugins._host.entry_points import Entry
from grpo.plugins._host.lock import drift
from grpo.plugins.host import Host

SOURCE = """
from grpo import reward

@reward(version={version}, isolation="inline")
def score(completion: str, *, limit: int = {limit}) -> float:
    return 1.0
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "mine.py"
    file.write_text(SOURCE.format(version=1, limit=3))
    return file


def test_the_record_holds_what_decides_a_score(path: Path) -> None:
    host = Host([])
    record = host.lock(host.reward(f"{path}:score:weight=2,as=mine"))
    assert record == {
        "kind": "reward",
        "name": "mine",
        "plugin": "score",
        "version": 1,
        "distribution": str(path),
        "distribution_version": "",
        "options": {"limit": 3},
        "weight": 2.0,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "given": [],
        "columns": [],
    }
    assert json.loads(json.dumps(record)) == record


def test_an_installed_plugin_has_its_version_and_the_hash_of_its_module(near_entry: Entry) -> None:
    import grpo.envs.gsm8k.spec

    host = Host.discover()
    record = host.lock(host.env("gsm8k"))
    assert record["distribution"] == "grpo-kit"
    assert record["distribution_version"] == "0.1.0"
    assert record["sha256"] == hashlib.sha256(Path(grpo.envs.gsm8k.spec.__file__).read_bytes()).hexdigest()
    near = Host([near_entry])
    assert near.lock(near.reward("near"))["distribution_version"] == "4.5"


def test_options_of_any_type_survive_json(near_entry: Entry) -> None:
    host = Host([near_entry])
    record = host.lock(host.reward("near:tolerance=Infinity,pair=[1,2]"))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["options"]["pair"] == [1.0, 2.0]


def test_the_same_plugin_has_no_drift(path: Path) -> None:
    host = Host([])
    record = host.lock(host.reward(f"{path}:score"))
    assert drift(record, json.loads(json.dumps(host.lock(host.reward(f"{path}:score"))))) == []


def test_every_change_is_a_line(path: Path) -> None:
    host = Host([])
    before = host.lock(host.reward(f"{path}:score"))
    path.write_text(SOURCE.format(version=2, limit=4))
    after = host.lock(host.reward(f"{path}:score:weight=3"))
    assert drift(before, after) == [
        "reward 'score': version was 1, is now 2",
        "reward 'score': option limit was 3, is now 4",
        "reward 'score': weight was 1.0, is now 3.0",
        "reward 'score': its source has changed",
    ]


def test_a_verifier_and_a_sandbox_have_no_weight(near_entry: Entry, make_entry: Callable[..., Entry]) -> None:
    sandbox = make_entry("@hookimpl\ndef grpo_sandboxes():\n    return [SandboxSpec('s', 1, dict)]\n")
    host = Host([near_entry, sandbox])
    assert host.lock(host.verifier("near_verifier"))["weight"] is None
    assert host.lock(host.sandbox("s"))["weight"] is None
    assert host.lock(host.sandbox("s"))["name"] == "s"

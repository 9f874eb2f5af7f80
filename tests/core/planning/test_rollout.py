"""Rollout backends that are refused before anything loads, and how the tokens of the others are weighed."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.planning.rollout import decide_rollout
from grpo.core.rollout.engine import release
from grpo.plugins.errors import UsageError


def config(**settings: Any) -> RunConfig:
    rollout = {"backend": "vllm", **settings.pop("rollout", {})}
    return parse_config({"env": "gsm8k", "rollout": rollout, **settings})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: "0.31.0")


def test_hf_is_the_default_and_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: None)
    chosen = parse_config({"env": "gsm8k"})
    decide_rollout(chosen, 1)
    assert chosen.rollout.backend == "hf"


def test_vllm_in_this_process_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: None)
    with pytest.raises(UsageError, match=r"vLLM is not installed\. Install it with: pip install"):
        decide_rollout(config(), 1)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"rollout": {"top_p": 0.8, "temperature": 0.7}}, r"rollout\.top_p with rollout\.temperature 0\.7"),
        ({"rollout": {"top_k": 5, "temperature": 0.7}}, r"rollout\.top_k"),
        ({"rollout": {"min_p": 0.1, "temperature": 1.2}}, r"rollout\.min_p"),
        ({"rollout": {"sleep": True}}, "there is no GPU here"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_could_not_be_right_is_refused(settings: dict[str, Any], what: str) -> None:
    import torch

    if "sleep" in str(settings) and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match=what):
        decide_rollout(config(**settings), 1)


@pytest.mark.usefixtures("installed")
def test_filters_at_temperature_one_are_allowed() -> None:
    decided = decide_rollout(config(rollout={"top_p": 0.8, "top_k": 50}), 1)
    assert decided == decide_rollout(config(), 1)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("backend", ["vllm", "vllm-server"])
def test_several_training_processes_are_served(backend: str) -> None:
    assert decide_rollout(config(rollout={"backend": backend}), 2) == "token_truncate"


def test_nobody_is_given_up_while_it_waits_for_its_server() -> None:
    waits = config(rollout={"backend": "vllm-server", "server_wait": 60.0}, failures={"wait_limit": 60.0})
    decide_rollout(waits, 1)
    with pytest.raises(UsageError, match=r"rollout\.server_wait 60 s: .* failures\.wait_limit, 60 s"):
        decide_rollout(waits, 2)


@pytest.mark.parametrize("backend", ["hf", "vllm-server"])
def test_sleep_without_an_engine_is_refused(backend: str) -> None:
    with pytest.raises(UsageError, match=r"rollout\.sleep needs the backend vllm"):
        decide_rollout(config(rollout={"backend": backend, "sleep": True}), 1)


def test_the_process_that_trains_beside_a_server_needs_no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: None)
    assert decide_rollout(config(rollout={"backend": "vllm-server"}), 1) == "token_truncate"


@pytest.mark.parametrize(
    "url", ["localhost:8271", "ftp://x", "http://", "http://me:secret@x:1", "http://x:port", "", "http://a,b"]
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"write it as http://HOST:PORT"):
        decide_rollout(config(rollout={"backend": "vllm-server", "server_url": url}), 1)


def test_several_servers_are_named_with_commas_and_each_once() -> None:
    urls = "http://a:1,http://b:1"
    decide_rollout(config(rollout={"backend": "vllm-server", "server_url": urls}), 1)
    with pytest.raises(UsageError, match="names a server twice"):
        decide_rollout(config(rollout={"backend": "vllm-server", "server_url": f"{urls},http://a:1"}), 1)


@pytest.mark.parametrize(
    ("settings", "correction"),
    [
        ({}, "token_truncate"),
        ({"rollout": {"backend": "hf"}}, "none"),
        ({"train": {"head": "trl"}}, "none"),
        ({"loss": {"rollout_correction": "sequence_mask"}}, "sequence_mask"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_completions_of_another_engine_are_corrected_unless_told_otherwise(
    settings: dict[str, Any], correction: str
) -> None:
    assert decide_rollout(config(**settings), 1) == correction

"""`grpo serve-rollouts` before an engine starts: what it refuses, and what it takes over from a run."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo.core.cli import serve as cli_serve
from grpo.core.config.schema import parse_config
from grpo.core.record.run_dir import create_run_dir
from grpo.core.rollout.engine import release
from grpo.core.rollout.server.capabilities import TOKEN, ServerCapabilities
from grpo.plugins.errors import UsageError


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServerCapabilities]:
    """The cards of the servers that would have been started."""
    cards: list[ServerCapabilities] = []

    def serve(server: Any, card: ServerCapabilities, *_: Any) -> None:
        server.http.stop()
        cards.append(card)

    monkeypatch.setattr(cli_serve, "_serve", serve)
    monkeypatch.setattr(release, "vllm_version", lambda: "0.31.0")
    monkeypatch.delenv(TOKEN, raising=False)
    return cards


def serve(*words: str) -> None:
    CliRunner().invoke(cli_serve.serve_rollouts, [*words, "--port", "0"], catch_exceptions=False, standalone_mode=False)


def test_without_a_token_it_listens_on_the_loopback_only(
    started: list[ServerCapabilities], monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("0.0.0.0", "192.168.0.7", "::"):
        with pytest.raises(UsageError, match=f"--host {host}: anybody who reaches this port could replace the weights"):
            serve("--host", host)
    serve()
    monkeypatch.setenv(TOKEN, "secret")
    serve("--host", "0.0.0.0")
    assert [card.lora_rank for card in started] == [None, None]


def test_a_port_that_is_taken_is_refused_before_the_model_loads(started: list[ServerCapabilities]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .*Choose another --port"):
            CliRunner().invoke(
                cli_serve.serve_rollouts, ["--port", port], catch_exceptions=False, standalone_mode=False
            )
    assert started == []


def test_a_missing_vllm_is_refused_with_the_install_line(
    started: list[ServerCapabilities], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: None)
    with pytest.raises(UsageError, match=r"vLLM is not installed\. Install it with: pip install"):
        serve()
    assert started == []


def test_the_embedded_model_is_served_with_all_its_context_and_adapters_where_asked(
    started: list[ServerCapabilities],
) -> None:
    serve("--lora")
    serve("--lora-rank", "8", "--lora-targets", "q_proj,v_proj", "--context", "300", "--dtype", "bfloat16")
    first, second = started
    assert (first.context, first.dtype, first.lora_rank) == (2048, "float32", 16)
    assert {"q_proj", "down_proj"} <= set(first.lora_modules)
    assert (second.context, second.dtype, second.lora_rank) == (300, "bfloat16", 8)
    assert second.lora_modules == ("q_proj", "v_proj")


def test_a_run_directory_asks_for_the_server_that_the_run_needs(
    started: list[ServerCapabilities], tmp_path: Path
) -> None:
    config = parse_config(
        {
            "env": "gsm8k",
            "train": {"dtype": "bfloat16"},
            "rollout": {"backend": "vllm-server", "top_p": 0.9},
            "lora": {"enabled": True, "rank": 4, "targets": ["q_proj"]},
        }
    )
    create_run_dir(tmp_path / "run", config.model_dump(mode="json"), {})
    serve("--model", str(tmp_path / "run"))
    (card,) = started
    assert (card.dtype, card.lora_rank, card.lora_modules, card.raw_logprobs) == ("bfloat16", 4, ("q_proj",), True)
    assert Path(card.model).name == "embedded"

"""`grpo doctor`: what is wrong with a machine is one line with a next step, and nothing secret is in it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command import environment_with
from patience import PATIENCE, RUN

from grpo.core.doctor.around import docker, hub, plugins, sandbox
from grpo.core.doctor.lines import Line, looked, shown
from grpo.core.doctor.machine import accelerator, clock, disk, encoding, machine


def one(lines: Iterator[Line] | list[Line], about: str) -> Line:
    [found] = [line for line in lines if line.about == about]
    return found


def test_a_look_that_hangs_or_raises_is_a_line_and_holds_up_nobody() -> None:
    ended = threading.Event()

    def hangs() -> list[Line]:
        threading.Event().wait(PATIENCE)
        ended.set()
        return []

    def raises() -> Iterator[Line]:
        yield Line("first", "ok", "found before")
        raise ImportError("libcudart.so.13: cannot open shared object file")

    assert [(line.state, "no answer within 0.2 s" in line.text) for line in looked("hub", hangs, 0.2)] == [
        ("error", True)
    ]
    assert not ended.is_set()
    first, line = looked("GPU", raises, PATIENCE)
    assert first.state == "ok"
    assert (line.about, line.state, "libcudart" in line.text) == ("GPU", "error", True)


def test_a_secret_that_begins_with_another_one_is_left_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_TOKEN", "sesame-one")
    monkeypatch.setenv("LONG_TOKEN", "sesame-one-and-two")
    assert shown("it said sesame-one-and-two") == "it said (secret)"


def test_nothing_secret_is_shown() -> None:
    home = Path.home()
    said = f"https://me:pass@host/x  {home}/runs hf_abcdefghijklmnop API_KEY=hush token=abc sk-proj-0123456789\nnext"
    [line] = looked("x", lambda: [Line("x", "error", said, said)], PATIENCE)
    for text in (line.text, line.next):
        assert not any(secret in text for secret in ("pass", "abcdefgh", "hush", "abc ", "0123456789", str(home) + "/"))
        assert "//(secret)@host/x ~/runs" in text
        assert "\n" not in text


@pytest.mark.parametrize(
    "said",
    [
        "https://me:HUSH/HU@SH@host/x",
        "http://HUSH@host",
        "Authorization: Bearer HUSH.HUSH-HUSH",
        "authorization: Basic HUSH==",
        "password: HUSH",
        "passwd=HUSH",
        "wrong PASSWORD='HUSH HUSH' given",
        "--password HUSH",
        "--hf-token HUSH",
        '{"token": "HUSH HUSH"}',
        "{'api_key': 'HUSH'}",
        "https://host/x?api-key=HUSH&sig=HUSH",
        "HF_TOKEN_hf_HUSHHUSHHUSH",
        "gho_HUSHHUSHHUSH",
        "glpat-HUSHHUSHHUSH",
        "AIzaHUSHHUSHHUSHHUSH",
        "eyJHUSHHUSH.HUSHHUSH.HUSH",
        "logged in as of-no-known-form-HUSH",
    ],
)
def test_secrets_of_any_form_are_left_out(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "of-no-known-form-HUSH")
    assert "HUSH" not in shown(said)


@pytest.mark.parametrize(
    "said",
    [
        "tokenizers 0.22.1, safetensors 0.6",
        "KeyError: 'model.embed_tokens.weight'",
        "advantage: 7, env: 15, sampler: 1, loss: 12",
        "https://huggingface.co answers",
        "2026-11-23 08:00 UTC",
        "pip install 'grpo-kit[vllm]'",
        "author: somebody, design: 3",
    ],
)
def test_what_is_no_secret_is_shown(said: str) -> None:
    assert shown(said) == said


def test_a_docker_that_does_not_answer_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    tool.chmod(0o755)
    monkeypatch.setattr("grpo.core.doctor.around.ANSWER", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert one(docker(), "docker").state == "warning"


def test_little_room_and_a_wrong_clock_or_encoding_are_said_with_what_to_do(tmp_path: Path) -> None:
    assert disk("disk", tmp_path / "runs" / "new", 1, "free some") == Line(
        "disk", "ok", disk("disk", tmp_path, 1, "").text
    )
    little = disk("disk", tmp_path, 2**60, "free some")
    assert (little.state, little.next) == ("warning", "free some")
    assert clock(0.0).state == "error"
    assert encoding("utf-8", "UTF-8").state == "ok"
    assert encoding("utf-8", "ANSI_X3.4-1968").state == "warning"
    assert {"processors", "memory", "disk", "clock", "locale"} <= {line.about for line in machine(tmp_path)}


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox runs on Linux")
def test_a_program_runs_in_the_sandbox() -> None:
    assert one(sandbox(), "sandbox").state == "ok"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A hub on this machine; `date` is what its clock says, `code` what it answers."""
    answer: dict[str, Any] = {"date": formatdate(usegmt=True), "code": 200}

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(answer["code"])
            self.send_header("Date", answer["date"])
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield answer
    server.shutdown()
    server.server_close()


def test_a_hub_that_answers_tells_the_time_too(served: dict[str, Any]) -> None:
    assert [(line.about, line.state) for line in hub()] == [("hub", "ok")]
    served["code"], served["date"] = 403, formatdate(time.time() - 3600, usegmt=True)
    found = list(hub())
    assert one(found, "hub").state == "ok"
    assert one(found, "clock") == Line("clock", "warning", "60 minutes apart from the hub's", "set the clock")


def test_a_hub_that_nobody_reaches_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    found = one(hub(), "hub")
    assert (found.state, "does not answer" in found.text, "folders" in found.next) == ("warning", True, True)


def test_tools_that_are_absent_are_no_trouble_and_a_gpu_that_torch_cannot_use_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch uses the GPU of this machine")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert one(docker(), "docker").state == "ok"
    assert one(accelerator(), "GPU").state == "ok"
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.95.05'\n")
    tool.chmod(0o755)
    found = one(accelerator(), "GPU")
    assert (found.state, found.text.startswith("NVIDIA H200, 580.95.05")) == ("error", True)
    assert found.next


def told(tmp_path: Path, *arguments: str, **variables: str) -> tuple[int, list[dict[str, str]], str]:
    environment = environment_with(tmp_path, GRPO_CACHE=str(tmp_path / "cache"), **variables)
    command = [sys.executable, "-m", "grpo", "doctor", "--json", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN, check=False, cwd=tmp_path
    )
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return done.returncode, found["lines"], done.stdout


@pytest.mark.slow
def test_a_library_of_another_version_a_broken_plugin_and_a_poor_locale_are_found(tmp_path: Path) -> None:
    old = tmp_path / "trl-0.9.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.9.0\n")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo]\nmain = broken_module\n")
    (tmp_path / "broken_module.py").write_text("import nothing_of_this_name\n")
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HF_HUB_OFFLINE": "1"}
    code, lines, _ = told(tmp_path, "--quick", **poor)
    states = {line["about"]: line for line in lines}
    assert code == 1
    assert states["trl"]["state"] == "error"
    assert "0.9.0 is installed; tried together was <1.17,>=1.16" in states["trl"]["text"]
    assert "nothing_of_this_name" in states["plugin broken"]["text"]
    assert states["plugins"]["state"] == "ok"
    assert states["locale"]["state"] == "warning"
    assert "training" not in states


@pytest.mark.slow
def test_all_of_it_with_two_steps_of_training_and_no_secret(tmp_path: Path) -> None:
    hidden = "hf_" + "q" * 30
    code, lines, text = told(tmp_path, HF_TOKEN=hidden, OPENAI_API_KEY="sk-" + "z" * 30, HF_HUB_OFFLINE="1")
    states = {line["about"]: line["state"] for line in lines}
    assert (code, states["training"], states["plugins"]) == (0, "ok", "ok"), lines
    assert not list((tmp_path).glob("runs*"))
    assert "qqqq" not in text
    assert "zzzz" not in text


def test_plugins_that_load_are_counted() -> None:
    assert "reward: " in one(plugins(), "plugins").text

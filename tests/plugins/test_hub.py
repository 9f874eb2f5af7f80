"""Loading from the hub is told, and where nobody answers only the cache is asked, once and quickly."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from grpo.plugins import _hub
from grpo.plugins._hub import NotReached, from_hub

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    _hub._answers.cache_clear()
    _hub._say.cache_clear()
    yield
    _hub._answers.cache_clear()


def load(*, offline: bool) -> None:
    with from_hub("nobody/nothing"):
        assert constants.HF_HUB_OFFLINE is offline
        raise OSError("nothing there")


def test_where_nobody_answers_the_cache_is_asked_and_a_failure_says_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(NotReached, match=rf"no answer from {NOWHERE}, .*Check the network, or name a local"):
        load(offline=True)
    assert not constants.HF_HUB_OFFLINE, "it stays as the user had it"
    assert capfd.readouterr().err.splitlines() == [
        "loading nobody/nothing from the hub ...",
        f"no answer from {NOWHERE}: looking for nobody/nothing in the cache ...",
    ]


def test_a_user_who_wants_no_network_is_not_told_to_check_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotReached, match="HF_HUB_OFFLINE is set"):
        load(offline=True)
    assert constants.HF_HUB_OFFLINE
    assert capfd.readouterr().err == "loading nobody/nothing from the cache of the hub ...\n"


def test_a_hub_that_answers_anything_is_asked_and_its_errors_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(OSError, match="nothing there"):
            load(offline=False)
        server.shutdown()


def test_a_folder_is_loaded_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    from grpo.core.policy.embedded import embedded_model_path
    from grpo.core.policy.load import load_model_config

    load_model_config(str(embedded_model_path()))
    assert "loading" not in capfd.readouterr().err

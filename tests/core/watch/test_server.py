"""The server of `grpo watch`: who is answered, what a reader may change, and what pages may do."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_run import made_run

from grpo.core.watch.folder import WatchedFolder
from grpo.core.watch.server import WatchServer
from grpo.plugins.errors import RunError

pytestmark = pytest.mark.slow


def started(folder: Path, *, edit: bool) -> Iterator[WatchServer]:
    with WatchServer(WatchedFolder(folder), 0, edit=edit) as server:
        yield server


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[WatchServer]:
    made_run(tmp_path / "pens")
    yield from started(tmp_path, edit=False)


@pytest.fixture
def editing(tmp_path: Path) -> Iterator[WatchServer]:
    made_run(tmp_path / "pens")
    yield from started(tmp_path, edit=True)


def ask(
    server: WatchServer, path: str, value: Any = None, **headers: str | None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Asks below the secret, with `value` as a change; a header that is None is not sent."""
    given = {"Host": f"127.0.0.1:{server.port}"}
    if value is not None:
        given |= {"Origin": f"http://127.0.0.1:{server.port}", "Content-Type": "application/json"}
    merged = {**given, **{name.replace("_", "-"): text for name, text in headers.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("GET" if value is None else "POST", path, skip_host=True)
    body = b"" if value is None else json.dumps(value).encode()
    for name, text in {"Content-Length": str(len(body)), **merged}.items():
        if text is not None:
            connection.putheader(name, text)
    connection.endheaders(body)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


@pytest.mark.core
def test_only_the_link_leads_anywhere(reading: WatchServer) -> None:
    assert ask(reading, f"/{reading.secret}/")[0] == 200
    for path in ("/", "", "/runs.json", f"/{reading.secret[:-1]}/", f"/{reading.secret}x/runs.json", "//runs.json"):
        status, _, body = ask(reading, path or "/")
        assert status == 404
        assert b"pens" not in body
        assert reading.secret.encode() not in body
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", reading.link)
    status, headers, _ = ask(reading, f"/{reading.secret}")
    assert (status, headers["Location"]) == (307, f"/{reading.secret}/")


@pytest.mark.core
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8080", "", "[::2]", "[", "10.0.0.1"]
)
def test_a_name_that_was_turned_round_to_this_machine_is_refused(reading: WatchServer, host: str) -> None:
    status, _, body = ask(reading, f"/{reading.secret}/runs.json", Host=host)
    assert status in (400, 403)
    assert b"pens" not in body


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost:8080", "LOCALHOST", "[::1]:80"])
def test_a_tunnel_may_have_another_port(reading: WatchServer, host: str) -> None:
    assert ask(reading, f"/{reading.secret}/runs.json", Host=host)[0] == 200


@pytest.mark.core
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", ""])
def test_another_origin_is_refused(editing: WatchServer, origin: str) -> None:
    assert ask(editing, f"/{editing.secret}/runs.json", Origin=origin)[0] == 403
    path = f"/{editing.secret}/delete"
    assert ask(editing, path, {"run": "pens", "confirmed": "pens"}, Origin=origin)[0] == 403
    assert b"pens" in ask(editing, f"/{editing.secret}/runs.json")[2]


def test_a_page_asks_for_what_is_new_and_is_told_when_nothing_is(reading: WatchServer) -> None:
    start = f"/{reading.secret}"
    status, _, body = ask(reading, f"{start}/data.json?run=pens&version=")
    found = json.loads(body)
    assert (status, set(found), found["waiting"]) == (200, {"version", "summary", "waiting"}, 0)
    assert ask(reading, f"{start}/data.json?run=pens&version={found['version']}")[0] == 204
    block = f"{start}/block?run=pens&version={found['version']}&name="
    assert [ask(reading, f"{block}{name}")[0] for name in ("run0-index", "run0-texts0", "run0-texts2")] == [200] * 3
    for name in (
        "",
        "run0",
        "run1-index",
        "run-1-index",
        "run0-texts3",
        "run0-texts-1",
        "run0-textsx",
        "../config.json",
    ):
        assert ask(reading, f"{block}{name}")[0] == 410
    assert ask(reading, f"{start}/block?run=pens&version=0-0&name=run0-index")[0] == 410
    status, _, body = ask(reading, f"{start}/data.json?run=none&version=")
    assert (status, "no run 'none'" in json.loads(body)["error"]) == (409, True)


def test_pages_are_neither_framed_nor_cached_and_may_ask_this_server_alone(reading: WatchServer) -> None:
    for asked in ("", "report?run=pens"):
        status, headers, body = ask(reading, f"/{reading.secret}/{asked}")
        assert status == 200
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', body.decode())
        assert policy is not None
        assert policy.group(1).startswith("default-src 'none'; script-src 'sha256-")
        assert policy.group(1).endswith("form-action 'none'; connect-src 'self'")
        assert reading.secret.encode() not in body


@pytest.mark.core
def test_nothing_changes_unless_it_was_allowed(reading: WatchServer) -> None:
    for what in ("label", "delete"):
        status, _, body = ask(reading, f"/{reading.secret}/{what}", {"run": "pens", "confirmed": "pens"})
        assert (status, b"--edit" in body) == (403, True)
    assert json.loads(ask(reading, f"/{reading.secret}/runs.json")[2])["edit"] is False


def test_runs_are_labelled_and_deleted_from_the_page_alone(editing: WatchServer) -> None:
    start, value = f"/{editing.secret}", {"run": "pens", "tags": ["best"], "note": "n", "hidden": False}
    assert ask(editing, f"{start}/label", value, Origin=None)[0] == 403
    assert ask(editing, f"{start}/label", value, Content_Type="text/plain")[0] == 403
    assert ask(editing, f"{start}/label", [1])[0] == 400
    assert ask(editing, f"{start}/label", value, Content_Length="1000000000")[0] == 413
    assert ask(editing, f"{start}/label", value, Content_Length="-1")[0] == 400
    assert ask(editing, f"{start}/label", value)[0] == 200
    assert json.loads(ask(editing, f"{start}/runs.json")[2])["runs"][0]["tags"] == ["best"]
    assert ask(editing, f"{start}/delete", {"run": "pens"})[0] == 409
    assert ask(editing, f"{start}/delete", {"run": "pens", "confirmed": "pens"})[0] == 200
    assert json.loads(ask(editing, f"{start}/runs.json")[2])["runs"] == []


@pytest.mark.parametrize("what", ["label", "delete"])
def test_a_name_that_no_folder_can_have_is_answered_in_words(editing: WatchServer, what: str) -> None:
    name = "x" * 300
    status, _, body = ask(editing, f"/{editing.secret}/{what}", {"run": name, "confirmed": name})
    assert (status, "there is no run" in json.loads(body)["error"]) == (409, True)


def test_what_nobody_foresaw_is_answered_in_words_and_the_server_goes_on(
    reading: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> list[dict[str, Any]]:
        raise RecursionError("too deep \x1b[31m")

    monkeypatch.setattr(reading.folder, "lines", lines)
    status, _, body = ask(reading, f"/{reading.secret}/runs.json")
    assert (status, json.loads(body)["error"]) == (500, "this could not be answered: RecursionError: too deep")
    monkeypatch.undo()
    assert ask(reading, f"/{reading.secret}/runs.json")[0] == 200


def test_a_run_that_cannot_be_read_leaves_the_others_to_be_seen(reading: WatchServer, tmp_path: Path) -> None:
    made_run(tmp_path / "evil").config.write_text("[" * 200_000)
    start = f"/{reading.secret}"
    told = {line["name"]: line["status"] for line in json.loads(ask(reading, f"{start}/runs.json")[2])["runs"]}
    assert told == {"pens": "done", "evil": "unreadable"}
    status, _, body = ask(reading, f"{start}/report?run=evil")
    assert (status, b"nested more than 200 deep" in body) == (409, True)
    assert ask(reading, f"{start}/report?run=pens")[0] == 200


def test_a_person_reads_what_is_wrong_as_text_and_a_script_as_json(reading: WatchServer) -> None:
    for accept, kind in (("text/html,*/*", "text/plain; charset=utf-8"), ("*/*", "application/json")):
        status, headers, body = ask(reading, f"/{reading.secret}/report?run=gone", Accept=accept)
        assert (status, headers["Content-Type"]) == (409, kind)
        assert b"there is no run 'gone'" in body
        assert body.startswith(b"{") == (kind == "application/json")


def test_a_port_that_is_taken_is_said_so(reading: WatchServer, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"--port"):
        WatchServer(WatchedFolder(tmp_path), reading.port)

"""`check_session`: the built-in session holds under every attack, and one that does not is found out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from grpo.core.check.attacks.sessions import all_session_attacks
from grpo.core.check.session import check_session
from grpo.plugins.errors import SessionError, UsageError
from grpo.plugins.session import Exit, SessionJob
from grpo.plugins.specs import SessionSpec


@pytest.mark.slow
def test_the_session_local_holds_under_every_attack() -> None:
    report = check_session("local")
    report.require()
    assert not report.of("warning")
    assert len(report.relations) > 20


@pytest.mark.slow
def test_the_session_local_holds_without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo.rewards.sandbox import cgroup

    monkeypatch.setattr(cgroup, "places", dict)
    check_session("local").require()


class Open:
    """A pool whose sessions isolate nothing: they run nothing, but claim the results of an unprotected machine."""

    directory, home = "/workspace", "/home/agent"

    def open(self, job: SessionJob) -> Open:
        return self

    def run(self, argv: list[str], **_: Any) -> Exit:
        return Exit(0, b"BREACH look('/etc/shadow')\nleft\ntried\n")

    def read(self, path: str) -> bytes:
        raise SessionError("no such file.")

    def stop(self) -> None:
        pass

    def capabilities(self) -> Mapping[str, bool]:
        return {}

    def close(self) -> None:
        pass

    @classmethod
    def reap(cls) -> int:
        return 0


@pytest.mark.parametrize("name", ["secrets of the host", "files of the host", "files for the next session"])
def test_a_session_that_isolates_nothing_is_found_out(name: str) -> None:
    [attack] = [attack for attack in all_session_attacks() if attack.name == name]
    factory: Any = Open
    report = check_session(SessionSpec("open", 1, factory), attacks=[attack])
    errors = {finding.relation for finding in report.of("error")}
    assert {f"attack: {name}", "commands", "files", "servers"} <= errors


def test_what_a_session_cannot_do_is_named_as_not_tried() -> None:
    attacks = [attack for attack in all_session_attacks() if attack.needs]
    factory: Any = Open
    report = check_session(SessionSpec("open", 1, factory), attacks=attacks)
    assert "attack: filling the disk: these sessions have no disk limit" in report.not_tried
    assert len(report.not_tried) == len(attacks) + 2
    assert not [relation for relation in report.relations if relation.startswith("attack: ")]


def test_a_factory_that_returns_no_pool_is_an_error() -> None:
    factory: Any = dict
    [finding] = check_session(SessionSpec("broken", 1, factory), attacks=[]).of("error")
    assert "not a SessionPool" in finding.message


def test_a_name_that_is_no_session_is_refused() -> None:
    with pytest.raises(UsageError, match="no session 'loca'"):
        check_session("loca")

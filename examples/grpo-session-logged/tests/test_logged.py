"""The session does what every session does, and notes its commands."""

from __future__ import annotations

from grpo_session_logged import LoggedPool, logged

from grpo import Host, SessionJob, check_session


def test_it_keeps_what_a_session_promises() -> None:
    report = check_session(logged, attacks=[])
    assert report.ok, str(report)


def test_commands_are_noted_with_how_they_ended() -> None:
    pool = logged()
    assert isinstance(pool, LoggedPool)
    try:
        session = pool.open(SessionJob(files={"a.txt": b"1"}))
        session.run(["cat", "a.txt"])
        session.run(["false"])
        session.close()
    finally:
        pool.close()
    assert pool.log == ["0 cat a.txt", "1 false"]


def test_grpo_finds_it() -> None:
    assert Host.discover().session("grpo-session-logged/logged").spec is logged

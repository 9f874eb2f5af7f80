"""Grades what a session holds in another session, which the policy's programs never saw.

Every process of the episode is dead by then. Only the working directory comes along: the system, HOME and everything
else are new. The grader's files are written to a folder whose name nobody could know before.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace

from grpo.envs.shell.tasks import Task
from grpo.plugins.errors import SessionError, SessionLost
from grpo.plugins.session import Exit, Session, SessionJob, SessionPool

_LONGEST = 2000  # characters of what a grader writes that are recorded
SCORE = "GRPO_SCORE"
"""The variable of a grader with the path of the file to which it may write a score between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader said.

    Attributes:
        score: from 0 to 1.
        said: the end of what it wrote.
    """

    score: float
    said: str


def grade(pool: SessionPool, session: Session | None, job: SessionJob, task: Task, seconds: float) -> Grade:
    """Ends a session and grades its working directory; a grader that does not end in time gives 0.

    Args:
        pool: opens the session of the grader.
        session: of the episode, which is closed; None where no command ran.
        job: what the session of the episode is opened with.
        task: has the grader.
        seconds: for the grader.

    Raises:
        SessionLost: a session broke, or the grader could not be started.
    """
    if session is None:
        judge = pool.open(replace(job, network=False, files=task.files))
    else:
        try:
            packed = _left(session)
        except SessionError as error:
            return Grade(0.0, f"the working directory cannot be read: {error}")
        finally:
            session.close()
        judge = pool.open(replace(job, network=False))
    try:
        if session is not None:
            unpacked = judge.run(["tar", "-x", "--strip-components=1"], stdin=packed, timeout=seconds)
            if unpacked.code != 0:
                return Grade(0.0, f"the working directory cannot be unpacked: {_said(unpacked)}")
        folder = f"/grader-{secrets.token_hex(8)}"
        for path, content in task.grader.items():
            judge.write(f"{folder}/{path}", content, mode=0o755)
        program, file = task.command
        left = judge.run([program, f"{folder}/{file}"], env={SCORE: f"{folder}/score"}, timeout=seconds)
        if left.code is None and not left.timed_out:
            raise SessionLost(f"the grader of the task '{task.name}' cannot be started: {left.problem}.")
        return Grade(_score(judge, f"{folder}/score", left), _said(left))
    finally:
        judge.close()


def _left(session: Session) -> bytes:
    """Returns the working directory as an archive, when every process is dead."""
    session.stop()
    with session.tar() as archive:
        return archive.read()


def _score(judge: Session, path: str, left: Exit) -> float:
    """Returns the score that a grader wrote, or what its exit status says."""
    if left.timed_out:
        return 0.0
    try:
        score = float(judge.read(path)[:100])
    except (SessionError, ValueError):
        return float(left.code == 0)
    return min(1.0, max(0.0, score)) if math.isfinite(score) else 0.0


def _said(left: Exit) -> str:
    text = (left.stdout + left.stderr).decode(errors="replace").strip()
    if left.timed_out:
        text += "\nthe grader ran out of time"
    return (left.problem or text).strip()[-_LONGEST:]

"""`check_sandbox`: the built-in sandbox holds under every attack, and a sandbox that does not is found out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo.core.check.attacks import Attack, all_attacks, tried
from grpo.core.check.sandbox import check_sandbox
from grpo.plugins.errors import UsageError
from grpo.plugins.sandbox_job import Job, JobResult
from grpo.plugins.specs import SandboxSpec

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_sandbox_local_holds_under_every_attack() -> None:
    report = check_sandbox("local")
    report.require()
    assert not report.of("warning")
    assert len(report.relations) > 100


@pytest.mark.slow
def test_it_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("it runs as an ordinary user already, and so did the test above")
    program = (
        "from grpo.core.check.sandbox import check_sandbox\n"
        "from grpo.rewards.sandbox.spec import local\n"
        "import os\n"
        "assert os.geteuid() == 65534\n"
        "print(check_sandbox(local))\n"
    )
    python = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if usable_by_all(path)), "")
    if not python:
        pytest.skip("no Python 3.11 or newer that every user may run")
    done = as_nobody(python, program)
    assert done.stderr == ""
    assert done.stdout.endswith("all hold\n") or "not tried: attack: memory split over children" in done.stdout, (
        done.stdout
    )
    assert " error" not in done.stdout


def usable_by_all(python: str) -> bool:
    """Says whether an ordinary user may run this Python with our modules."""
    done = as_nobody(python, "import sys, grpo.core.check.sandbox\nassert sys.version_info >= (3, 11)")
    return done.returncode == 0


def as_nobody(python: str, program: str) -> subprocess.CompletedProcess[str]:
    import pluggy

    paths = [str(ROOT / "src"), str(Path(pluggy.__file__).resolve().parents[1])]
    try:
        return subprocess.run(
            [python, "-B", "-c", program],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",
            user=65534,
            group=65534,
            extra_groups=[],
        )
    except OSError as error:
        return subprocess.CompletedProcess([python], 1, "", str(error))


class Open:
    """A pool that isolates nothing: it runs nothing, but claims the results of an unprotected machine."""

    stdout = b"BREACH look('/etc/shadow')\n"

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return [JobResult("exited", stdout=self.stdout, exit_code=0) for _ in jobs]

    def capabilities(self) -> dict[str, bool]:
        return {"profile:python": True}

    def close(self) -> None:
        pass

    @classmethod
    def reap(cls) -> int:
        return 0


def test_a_sandbox_that_lets_an_attack_through_is_found_out() -> None:
    attack = Attack("secrets", tried("", "open('/etc/shadow').read()"))
    report = check_sandbox(SandboxSpec("open", 1, Open), attacks=[attack])
    assert not report.ok
    findings = {finding.relation: finding for finding in report.findings}
    assert "it got through: BREACH look('/etc/shadow')" in findings["attack: secrets"].message
    assert {"endings", "order and number of results", "side by side", "unknown profile"} <= set(findings)
    assert findings["peers"].severity == "warning"


def test_a_sandbox_that_raises_or_is_no_pool_is_an_error_of_its_interface() -> None:
    factories: list[Any] = [dict, lambda: 1 / 0]
    for factory in factories:
        report = check_sandbox(SandboxSpec("broken", 1, factory), attacks=[])
        assert [finding.relation for finding in report.of("error")] == ["interface"]
    with pytest.raises(UsageError, match="no sandbox 'locale'"):
        check_sandbox("locale")


def test_attacks_have_their_own_names_and_compile_unless_that_is_their_point() -> None:
    attacks = all_attacks()
    assert len({attack.name for attack in attacks}) == len(attacks)
    for attack in attacks:
        if attack.outcomes[0] != "compile_error" and len(attack.program) < 2**20:
            compile(attack.program, attack.name, "exec")
    assert sys.getrecursionlimit() < 10**6, "attacks are compiled here, and never run"

"""The pytest plugin: its fixture fails a test with the report, and importing it costs nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_fixture_fails_the_test_with_the_report(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from grpo import Case, reward\n\n"
        "@reward(version=1, cases=[Case('a', expect=1.0)])\n"
        "def wrong(completion):\n    return 0.0\n"
    )
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from grpo.plugins.host import Host

            def test_bad(grpo_check):
                grpo_check(Host.discover().reward("./bad.py:wrong"))

            def test_good(grpo_check):
                assert grpo_check(Host.discover().verifier("gsm8k")).ok

            def test_neither(grpo_check):
                with pytest.raises(TypeError, match="not str"):
                    grpo_check("gsm8k")
            """
        ),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:grpo", "-p", "grpo.core.check.fixture", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed, 2 passed" in done.stdout
    assert "error: cases" in done.stdout


def test_the_pytest_plugin_imports_nothing_heavy() -> None:
    code = "import pytest, sys; had = set(sys.modules); import grpo.core.check.fixture; print(*set(sys.modules) - had)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} == {"grpo"}
    assert importlib.util.find_spec("grpo.core.check.reward") is not None
    assert "grpo.core.check.reward" not in done.stdout.split()

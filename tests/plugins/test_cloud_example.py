"""The example session for clouds passes its own tests with the real Harbor, in a Python of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "grpo-session-cloud"
HARBOR = "harbor>=0.26,<0.27"


def newer_python() -> str | None:
    """The path of a Python that Harbor runs in; pyenv's are not all on PATH."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.1[2-4].*/bin/python3"))
    known = [shutil.which(name) for name in ("python3.12", "python3.13", "python3.14")]
    for path in (*map(str, pyenv), *filter(None, known)):
        if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def with_harbor(folder: Path) -> str:
    """Makes an environment that has Harbor, and returns its Python."""
    python = newer_python()
    if python is None:
        pytest.skip("Harbor needs Python 3.12 or newer; this machine has none")
    subprocess.run([python, "-m", "venv", folder], check=True)
    # -I: this project, which PYTHONPATH may name, is not for that Python
    subprocess.run([folder / "bin" / "python", "-I", "-m", "pip", "install", "-q", HARBOR], check=True)
    return str(folder / "bin" / "python")


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="machines are made by root on Linux")
def test_the_tests_of_the_example_pass_with_harbor_itself(tmp_path: Path) -> None:
    python = os.environ.get("GRPO_HARBOR_PYTHON") or with_harbor(tmp_path / "harbor")
    shutil.copytree(EXAMPLE, tmp_path / "example")
    flags = ("--no-deps", "--no-build-isolation", "-q", "--target", tmp_path / "site")
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, tmp_path / "example"], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "example" / "tests"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path / "site")]),
            "GRPO_HARBOR_PYTHON": python,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

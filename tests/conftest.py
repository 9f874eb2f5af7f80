"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data sets and recorded cases: $GRPO_TEST_DATA, else ../shared/data beside the checkout.

    Without it the test is skipped, or fails when GRPO_REQUIRE_DATA is set.
    """
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("GRPO_TEST_DATA", root.parent / "shared" / "data"))
    if not folder.is_dir():
        message = f"no data at {folder}; set GRPO_TEST_DATA to the folder with gsm8k/ and cases/"
        if os.environ.get("GRPO_REQUIRE_DATA"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], dict[str, str]]:
    """Gives the environment variables of a Python that finds the packages of a file first, and then those of this one.

    They are installed as the file pins them, without their dependencies. Without a package index the test is skipped,
    or fails when GRPO_REQUIRE_INDEX is set.
    """

    def installed(packages: Path) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(packages.stem)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
        where = ["--no-deps", "--no-compile", "--target", str(folder), "-r", str(packages)]
        done = subprocess.run([*pip, *where], capture_output=True, text=True, timeout=900, check=False)
        offline = "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr
        if offline and not os.environ.get("GRPO_REQUIRE_INDEX"):
            pytest.skip("needs a package index")
        assert done.returncode == 0, done.stderr
        return {**os.environ, "PYTHONPATH": str(folder)}

    return installed

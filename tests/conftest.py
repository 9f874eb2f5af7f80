"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
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

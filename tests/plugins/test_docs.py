"""docs/writing-rewards.md and docs/plugins.md: complete and true, every hook and name is there, their examples run."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import grpo
from grpo.plugins import hookspecs
from grpo.plugins._host.loading import HOOKS, State
from grpo.plugins._spec import soundness
from grpo.plugins._spec.signature import RESERVED_OPTIONS
from grpo.plugins._spec.spec_text import TABLE_KEYS, parse
from grpo.plugins.events import Event, RunEnded
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {page: (ROOT / page).read_text() for page in ("docs/writing-rewards.md", "docs/plugins.md")}
TEXT = "\n".join(TEXTS.values())
BLOCKS = [
    (page, *block)
    for page, text in TEXTS.items()
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]


def blocks(language: str) -> list[str]:
    return [body for _, name, body in BLOCKS if name == language]


def test_the_public_names_can_be_had() -> None:
    assert grpo.__all__ == sorted(grpo.__all__)
    for name in grpo.__all__:
        assert getattr(grpo, name) is not None
    assert dir(grpo) == sorted([*grpo.__all__, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'rewrad'"):
        getattr(grpo, "rewrad")  # noqa: B009


@pytest.mark.parametrize("name", grpo.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(grpo, name))


def test_the_hooks_are_pinned_and_each_is_documented() -> None:
    declared = [name for name, value in vars(hookspecs).items() if hasattr(value, "grpo_spec")]
    assert declared == [
        "grpo_rewards",
        "grpo_verifiers",
        "grpo_envs",
        "grpo_sandboxes",
        "grpo_sessions",
        "grpo_losses",
        "grpo_advantages",
        "grpo_samplers",
        "grpo_agents",
        "grpo_observe",
    ]
    assert sorted(HOOKS) == sorted(declared)
    for name in declared:
        parameters = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
        assert f"| `{name}({parameters})` |" in TEXT


def test_every_event_prefix_state_and_reserved_key_is_documented() -> None:
    for event in Event.__args__:
        assert f"`{event.__name__}`" in TEXT
    for prefix in soundness.RESERVED_PREFIXES:
        assert f"`{prefix}:`" in TEXT
    for state in ("ok", *get_args(State)):
        assert f"| `{state}` |" in TEXT
    for key in (*RESERVED_OPTIONS, *TABLE_KEYS):
        assert f"`{key}`" in TEXT


def keywords_of(decorator: Callable[..., Any]) -> list[str]:
    return [name for name, it in inspect.signature(decorator).parameters.items() if it.kind is it.KEYWORD_ONLY]


@pytest.mark.parametrize("decorator", [grpo.reward, grpo.verifier], ids=lambda it: it.__name__)
def test_every_argument_of_a_reward_is_in_the_table(decorator: Callable[..., Any]) -> None:
    table = TEXT.partition("## A reward\n")[2].partition("\n## ")[0]
    documented = {
        name for cell in re.findall(r"^\| (.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }
    assert set(keywords_of(decorator)) <= documented


@pytest.mark.parametrize("decorator", [grpo.env, grpo.loss, grpo.advantage, grpo.sampler, grpo.agent])
def test_every_argument_of_the_other_decorators_is_in_the_docstrings(decorator: Callable[..., Any]) -> None:
    text = f"{decorator.__doc__}{grpo.EnvSpec.__doc__ if decorator is grpo.env else ''}"
    assert [name for name in keywords_of(decorator) if not re.search(rf"^ +{name}: ", text, re.MULTILINE)] == []


def test_every_public_method_of_the_host_has_a_docstring() -> None:
    assert [name for name in vars(Host) if not name.startswith("_") and not inspect.getdoc(getattr(Host, name))] == []


def test_every_field_of_a_completion_is_documented() -> None:
    [sentence] = [line for line in TEXT.splitlines() if line.startswith("A `Completion` has")]
    for name in Completion.__slots__:
        assert f"`{name}`" in sentence


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    module = types.ModuleType("documented")  # where dataclasses look for their annotations
    monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace: dict[str, object] = vars(module)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    for page, language, body in BLOCKS:
        if language == "python":
            exec(compile(body, page, "exec"), namespace)
        elif language == "pycon":
            example = parser.get_doctest(body, namespace, page, page, 0)
            result = runner.run(example, clear_globs=False)
            assert result.attempted > 0
            assert result.failed == 0, capsys.readouterr().out
            namespace.update(example.globs)
    closeness = namespace["closeness"]
    for case in closeness.cases:  # type: ignore[attr-defined]
        assert closeness(case.completion, **case.row) == case.expect  # type: ignore[operator]
    assert len(namespace["rows"]("test", size=2)) == 2  # type: ignore[operator]
    namespace["grpo_observe"](RunEnded("runs/x", 1, "done"))  # type: ignore[operator]
    assert capsys.readouterr().out.endswith("saw RunEnded\n")


def test_the_documented_specs_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    host = Host.discover()
    [specs] = blocks("spec")
    invented = [parse(line) for line in specs.splitlines() if "mine" in line]
    assert [spec.name for spec in invented] == ["mine", "score", "score"]
    assert invented[0].options["words"].parsed == ["a,b", "c"]
    bound = [host.reward(line) for line in specs.splitlines() if "mine" not in line]
    assert [reward.name for reward in bound] == ["proximity", "proximity", "near", "format", "format", "gsm8k.xmlcount"]


def test_the_documented_tables_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    configuration, project = (tomllib.loads(body) for body in blocks("toml"))
    assert [reward.weight for reward in Host.discover().rewards(configuration["rewards"])] == [2.0, 0.5]
    assert project["project"]["entry-points"]["grpo"] == {"mine": "grpo_reward_mine"}


def test_the_documented_rubric_can_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    [body] = re.findall(r"^```toml tidy\.toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "tidy.toml").write_text(body)
    bound = Host.discover().reward(f"{tmp_path}/tidy.toml:weight=2,format.tags=reasoning/answer")
    [case] = bound.spec.cases
    assert isinstance(case.completion, str)
    assert bound.call(Completion(case.completion, row=case.row)) == case.expect


def test_the_documented_files_exist() -> None:
    for target in re.findall(r"\]\((\.\./[^)]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists()


def test_every_built_in_loss_and_advantage_is_in_the_page_of_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    page, host = (ROOT / "docs" / "losses.md").read_text(), Host.discover()
    for known in (*host.registrations("loss"), *host.registrations("advantage")):
        assert f"| `{known.spec.name}" in page, known.spec.name
    written = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    names = {known.spec.name: known.kind for known in host.registrations()}
    for spec in written:
        kind = names[spec.partition(":")[0]]
        bind = host.loss if kind == "loss" else host.advantage
        if spec != "cispo":  # whose option the text names
            assert bind(spec).spec.name == spec.partition(":")[0]

"""`@env` and `@sandbox`: what they take from a factory or a class, and what they refuse."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import pytest

from grpo import EnvSpec, SandboxSpec, env, sandbox
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import NotInstalled, SpecError
from grpo.plugins.host import Host

Level = Literal["easy", "hard"]


class Sums(gymnasium.Env[str, str]):
    """Asks for sums."""

    def __init__(self, *, size: int = 2, level: Level = "easy") -> None:
        self.size, self.level = size, level


def rows(split: str, *, size: int = 2) -> list[dict[str, str]]:
    return [{"question": f"{split} {number}"} for number in range(size)]


@env(version=3, dataset=rows, rewards=["near"], verifier="exact", max_turns=4, note="Easy.")
def sums(*, size: int = 2) -> Sums:
    """Asks for small sums.

    Args:
        size: how many.
    """
    return Sums(size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Asks for products."""

    size: int = 2
    schedule: str = "mixed"

    def env(self) -> Sums:
        return Sums(size=self.size)

    def rows(self, split: str) -> list[dict[str, str]]:
        return rows(split, size=self.size)

    @property
    def ordered(self) -> bool:
        return self.schedule == "rising"


PRODUCTS = env(name="products", version=1)(Products)


def test_a_factory_gives_its_name_its_documentation_and_its_options() -> None:
    assert isinstance(sums, EnvSpec)
    assert (sums.name, sums.version, sums.max_turns, sums.note) == ("sums", 3, 4, "Easy.")
    assert sums.doc.splitlines()[0] == "Asks for small sums."
    assert [(option.name, option.type, option.default) for option in sums.options] == [("size", int, 2)]
    assert (sums.rewards, sums.verifier, sums.dataset) == (("near",), "exact", rows)
    made: list[Any] = [sums(size=5), sums.factory(size=5)]
    assert [one.size for one in made] == [5, 5]


def test_a_class_of_environments_is_a_factory() -> None:
    spec = env(version=1)(Sums)
    assert (spec.name, spec.doc) == ("Sums", "Asks for sums.")
    assert [(option.name, option.type, option.default) for option in spec.options] == [
        ("size", int, 2),
        ("level", Level, "easy"),
    ]
    hard: Any = spec(level="hard")
    assert hard.level == "hard"


def test_a_class_of_options_makes_environment_rows_and_order() -> None:
    bound = BoundEnv(PRODUCTS, "dist", {"size": 3, "schedule": "rising"})
    assert [option.name for option in PRODUCTS.options] == ["size", "schedule"]
    assert bound.make().size == 3
    assert bound.rows("test") == rows("test", size=3)
    assert bound.ordered
    assert not BoundEnv(PRODUCTS, "dist").ordered
    assert pickle.loads(pickle.dumps(PRODUCTS.factory))(size=4).size == 4


def test_a_class_of_options_without_rows_makes_its_own_episodes() -> None:
    class Bare:
        def env(self) -> Sums:
            return Sums()

    spec = env(version=1)(Bare)
    assert (spec.dataset, spec.ordered, spec.options, spec.doc) == (None, None, (), "")


def test_a_family_takes_the_name_of_a_member_and_options_that_only_it_knows() -> None:
    @env(version=1, resolve=lambda member: sums)
    def gym(member: str, *, turns: int = 3, **inner: Any) -> Sums:
        return Sums()

    assert gym.name == "gym"
    assert [option.name for option in gym.options] == ["turns"]


def test_a_sandbox_gives_its_name_its_documentation_and_its_options() -> None:
    @sandbox(version=2, name="box")
    def make_box(*, slots: int = 0) -> Any:
        """Runs nothing."""
        return slots

    assert isinstance(make_box, SandboxSpec)
    assert (make_box.name, make_box.version, make_box.doc) == ("box", 2, "Runs nothing.")
    assert [option.name for option in make_box.options] == ["slots"]
    assert make_box(slots=3) == 3


def without_options(split: str) -> list[dict[str, str]]:
    return []


def positional(size: int) -> Any: ...


def open_ended(**options: Any) -> Any: ...


def reserved(*, weight: float = 1.0) -> Any: ...


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        (Sums(), {}, "is neither a function nor a class"),
        (positional, {}, "nothing fills 'size: 'int''"),
        (open_ended, {}, r"nothing fills '\*\*options"),
        (reserved, {}, "'weight' is reserved"),
        (sums.factory, {"version": "1"}, "version '1' must be a whole number"),
        (sums.factory, {"name": "a b"}, "'a b' cannot be a plugin name"),
        (sums.factory, {"name": "gym"}, "SPECs give it another meaning"),
        (sums.factory, {"resolve": lambda member: sums}, "cannot be a family"),
        (sums.factory, {"dataset": without_options}, "its dataset does not take the option 'size'"),
    ],
)
def test_what_cannot_be_an_environment_is_refused_in_words(factory: Any, arguments: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        env(**{"version": 1, **arguments})(factory)


@pytest.mark.parametrize("decorator", [env, sandbox])
def test_a_bare_decorator_is_refused_in_words(decorator: Any) -> None:
    with pytest.raises(SpecError, match=f"Write @{decorator.__name__}\\(\\), or"):
        decorator(sums.factory, version=1)


@pytest.mark.parametrize("kind", ["sandbox", "session"])
def test_a_missing_module_is_refused_when_a_plugin_is_bound(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    told = "'docker' needs .* Install it with: pip install 'grpo-kit\\[docker\\]'"
    with pytest.raises(NotInstalled, match=f"{kind} {told}"):
        getattr(Host.discover(), kind)("docker")
    with pytest.raises(NotInstalled, match=f"sandbox {told}"):
        Host.discover().reward("code:sandbox=docker")


def test_modules_are_names_with_how_to_install_them() -> None:
    def make() -> Any: ...

    with pytest.raises(SpecError, match="modules must map names to texts"):
        sandbox(version=1, modules=["docker"])(make)  # type: ignore[arg-type]

"""`trl:MODULE:CLASS`: environments written for TRL's environment_factory, the contract as trl 1.16 states it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from grpo.core.env.tools import ToolCall, answer, functions_of, schemas_of
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

GAMES = '''
import random

class Door:
    """A prize behind one of two doors."""

    def reset(self, **kwargs):
        self.columns = kwargs
        self.right = kwargs.get("right") or random.choice(["left", "right"])
        self.opened = None
        return f" A draught comes from the {self.right}."

    def open(self, side: str) -> str:
        """Opens a door.

        Args:
            side: left or right.
        """
        self.opened = side
        return "A prize!" if side == self.right else "Nothing."

    def _secret(self):
        return self.right

    async def get_reward(self) -> float:
        return float(self.opened == self.right)

class Bare:
    def reset(self):
        return None

    def wait(self) -> str:
        """Waits."""
        return "Done."

class Nothing:
    pass
'''


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("games") / "trl_games.py"
    file.write_text(GAMES)
    return file


def called(env: Any, name: str, **arguments: Any) -> str:
    return answer(functions_of(env), ToolCall(name, arguments))


def test_methods_become_tools_and_get_reward_the_reward(host: Host, games: Path) -> None:
    bound = host.env({"name": f"trl:{games}:Door", "options": {"prompt": "Open a door.", "size": 4}})
    env = bound.make()
    check_env(env, skip_render_check=True)
    [schema] = schemas_of(env, bound.name)
    assert schema["function"]["name"] == "open"
    rows = bound.rows("train") or []
    shown, info = env.reset(seed=3, options={"row": rows[1]})
    right = shown.rpartition("the ")[2].rstrip(".")
    assert info["prompt"] == [{"role": "user", "content": f"Open a door. A draught comes from the {right}."}]
    assert called(env, "open", side=right) == "A prize!"
    _, reward, ended, cut, info = env.step("I have it.")
    assert (reward, ended, cut, info) == (1.0, True, False, {"scores": {"reward": 1.0}})
    env.reset(seed=3, options={"row": rows[1]})
    assert env.step("I will not.")[1] == 0.0, "nothing is left over from the episode before"


def test_members_of_a_group_start_alike_though_trl_gives_no_seed(host: Host, games: Path) -> None:
    bound = host.env({"name": f"trl:{games}:Door", "options": {"size": 30}})
    train, test = bound.rows("train") or [], bound.rows("test") or []

    def starts(rows: Any) -> list[str]:
        return [bound.make().reset(seed=number, options={"row": row})[0] for number, row in enumerate(rows)]

    random.seed(1)
    expected = random.random()
    random.seed(1)
    assert starts(train) == starts(train)
    assert random.random() == expected
    assert len(set(starts(train))) == 2
    assert starts(train) != starts(test)


def test_reset_gets_the_columns_of_a_dataset(host: Host, games: Path, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Which door?"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": messages, "right": "left", "n": n}) + "\n" for n in range(20)))
    bound = host.env({"name": f"trl:{games}:Door", "options": {"dataset": str(file)}})
    rows = bound.rows("train") or []
    assert len(rows) == 18
    env = bound.make()
    _, info = env.reset(seed=0, options={"row": rows[2]})
    assert info["row"] == {"right": "left", "n": 2}
    assert info["prompt"][-1]["content"] == "Which door? A draught comes from the left."
    assert rows[2]["prompt"][-1]["content"] == "Which door?", "the row is left as it is"
    file.write_text((json.dumps({"question": "?"}) + "\n") * 5)
    with pytest.raises(DatasetError, match="no column 'prompt'"):
        bound.rows("train")


def test_a_class_without_get_reward_leaves_the_reward_to_the_user(host: Host, games: Path) -> None:
    bound = host.env(f"trl:{games}:Bare")
    assert bound.spec.rewards == ()
    env = bound.make()
    env.reset(seed=0)
    assert called(env, "wait") == "Done."
    assert env.step("That is all.")[1] == 0.0


@pytest.mark.parametrize(
    ("member", "error", "why"),
    [
        ("Door", PluginNotFound, "names no class"),
        ("./none.py:Door", PluginNotFound, "no file './none.py'"),
        ("no_such_module:Door", PluginNotFound, "cannot be imported"),
        ("{games}:Dor", PluginNotFound, "Did you mean 'Door'"),
        ("{games}:Nothing", OptionError, "no method reset"),
    ],
)
def test_what_is_no_environment_is_refused(
    host: Host, games: Path, member: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        host.env(f"trl:{member.format(games=games)}")


def test_a_column_of_any_name_reaches_reset(host: Host, games: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": "Open.", "episode": name}) + "\n" for name in ["S01E02", 7] * 10))
    bound = host.env({"name": f"trl:{games}:Door", "options": {"dataset": str(file)}})
    env = bound.make()
    for row in (bound.rows("train") or [])[:2]:
        assert env.reset(seed=0, options={"row": row})[1]["row"] == {"episode": row["episode"]}


def test_content_in_parts_is_read_as_text(host: Host, games: Path, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Which "}, {"type": "text", "text": "door?"}]
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "open", "arguments": {}}}]}
    prompt = [{"role": "user", "content": "Begin."}, call, {"role": "user", "content": parts}]
    file = tmp_path / "rows.jsonl"
    file.write_text((json.dumps({"prompt": prompt, "right": "left"}) + "\n") * 20)
    bound = host.env({"name": f"trl:{games}:Door", "options": {"dataset": str(file)}})
    _, info = bound.make().reset(seed=0, options={"row": (bound.rows("train") or [])[0]})
    assert info["prompt"][-1]["content"] == "Which door? A draught comes from the left."
    assert info["prompt"][1]["content"] == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "line 1: the column 'prompt', message 1 has content that is no text"),
        ([{"type": "image", "url": "x"}], "message 1 has content that is no text"),
        (["Open."], "message 1 has content that is no text"),
    ],
)
def test_content_that_is_no_text_is_refused_with_its_row(
    host: Host, games: Path, tmp_path: Path, content: object, why: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text((json.dumps({"prompt": [{"role": "user", "content": content}]}) + "\n") * 20)
    with pytest.raises(DatasetError, match=why):
        host.env({"name": f"trl:{games}:Door", "options": {"dataset": str(file)}}).rows("train")


BROKEN = '''
class Start:
    def reset(self, **kwargs):
        return "Go."

class Needs(Start):
    def __init__(self, size):
        self.size = size

class Silent(Start):
    def go(self):
        return 1

class Untyped(Start):
    def go(self, far):
        """Goes.

        Args:
            far: how far.
        """

class Parts(Start):
    def reset(self, **kwargs):
        return [{"type": "text", "text": "Go."}]

class Undecided(Start):
    def get_reward(self):
        return None
'''


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Needs", "cannot be made: TypeError: .*without arguments"),
        ("Silent", "its method 'go' is a tool of the policy, and it has no docstring"),
        ("Untyped", "the parameter 'far' has no type"),
        ("Parts", "reset returned a list"),
    ],
)
def test_a_class_that_cannot_be_used_is_the_users_to_mend(host: Host, tmp_path: Path, name: str, why: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    with pytest.raises(OptionError, match=why):
        host.env(f"trl:{file}:{name}").make().reset(seed=0)


def test_a_reward_of_none_is_an_abstention(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "undecided.py"
    file.write_text(BROKEN)
    env = host.env(f"trl:{file}:Undecided").make()
    env.reset(seed=0)
    _, reward, _, _, info = env.step("Done.")
    rollout = Completion("Done.", info={**info, "rewards": [reward]})
    assert host.reward("environment").spec(rollout) is None

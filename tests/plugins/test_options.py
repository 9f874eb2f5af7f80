"""Option values are checked against the annotations of the plugin, from text and from tables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins._host.entry_points import Entry
from grpo.plugins.errors import OptionError, PluginError
from grpo.plugins.host import Host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tolerance=0.5", {"tolerance": 0.5}),
        ("tolerance=1", {"tolerance": 1.0}),
        ("tolerance=.5", {"tolerance": 0.5}),
        ("limit=7", {"limit": 7}),
        ("limit=7.0", {"limit": 7}),
        ('limit="7"', {"limit": 7}),
        ("tag=72", {"tag": "72"}),
        ("tag=true", {"tag": "true"}),
        ('tag="a,b"', {"tag": "a,b"}),
        ("mode=b", {"mode": "b"}),
        ("flag=true", {"flag": True}),
        ("flag=yes", {"flag": True}),
        ("pair=[1,2]", {"pair": (1.0, 2.0)}),
        ('words=["a","b"]', {"words": ["a", "b"]}),
        ("words=null", {"words": None}),
    ],
)
def test_text_becomes_the_annotated_type(near_entry: Entry, text: str, expected: dict[str, Any]) -> None:
    options = Host([near_entry]).reward(f"near:{text}").options
    assert options == expected
    assert [type(value) for value in options.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("7", ["expected key=value, found '7'", "Write near:tolerance=7."]),
        ("0.5", ["Write near:tolerance=0.5."]),
        ("b", ["Write near:mode=b."]),
        ("hello", ["Write near:tag=hello."]),
        ("hello,limit=3", ["Write near:tag=hello,limit=3."]),
        ("limit", ["Write near:limit=VALUE."]),
        ("mode=b,limit,flag=yes", ["Write near:mode=b,limit=VALUE,flag=yes."]),
        ("tag=a,b", ['tag="a,b"', "Or write near:tag=a,mode=b."]),
        ("words=[1,2", ['words="a,b" or words=[1,2]', "found '2'"]),
    ],
)
def test_a_value_without_a_name_is_answered_with_the_spec_to_write(
    near_entry: Entry, text: str, words: list[str]
) -> None:
    with pytest.raises(OptionError) as error:
        Host([near_entry]).reward(f"near:{text}")
    for word in words:
        assert word in str(error.value)


def test_a_plugin_of_a_file_is_shown_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def soft(completion, *, k: int = 3):\n    return 1.0\n")
    for text in ("5", "j=5", "k=x"):
        with pytest.raises(OptionError, match=re.escape(f"grpo plugins show {file}:soft")):
            Host([]).reward(f"{file}:soft:{text}")


def test_a_table_keeps_its_own_types(near_entry: Entry) -> None:
    host = Host([near_entry])
    assert host.reward({"name": "near", "options": {"pair": [0, 2], "tag": "72"}}).options == {
        "pair": (0.0, 2.0),
        "tag": "72",
    }
    with pytest.raises(OptionError, match="expected str"):
        host.reward({"name": "near", "options": {"tag": 72}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tolerance=wide", ["'tolerance' cannot be 'wide'", "expected float"]),
        ("limit=7.5", ["'limit' cannot be '7.5'", "expected int"]),
        ("limit=true", ["'limit' cannot be 'true'", "expected int"]),
        ("mode=c", ["expected 'a' | 'b'"]),
        ("pair=[1]", ["expected tuple[float, float]"]),
        ("words=3", ["expected list[str] | None"]),
        ("words=a", ["expected list[str] | None", 'Write it as JSON, such as words=["a","b"].']),
        (
            "tolerence=1",
            ["no option 'tolerence'", "Did you mean 'tolerance'?", "mode", "grpo plugins show reward:near"],
        ),
        ("hint=here", ["no option 'hint'. It reads 'hint' as a column: in its parameters, options come after a bare"]),
        ("wieght=1", ["no option 'wieght'. Did you mean 'weight'? Options"]),  # a key that every reward takes
    ],
)
def test_a_wrong_option_names_option_value_type_and_the_known_ones(
    near_entry: Entry, text: str, words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        Host([near_entry]).reward(f"near:{text}")
    for word in ["reward 'near'", "Options: tolerance, limit, tag", *words]:
        assert word in str(caught.value)


def test_a_required_option_must_be_given(make_entry: Callable[..., Entry]) -> None:
    host = Host(
        [
            make_entry(
                """
                @reward(version=1)
                def strict(completion: str, *, level: int) -> float:
                    return level

                @hookimpl
                def grpo_rewards():
                    return [strict]
                """
            )
        ]
    )
    with pytest.raises(OptionError, match=r"needs the option 'level' \(int\)"):
        host.reward("strict")
    assert host.reward("strict:level=2").options == {"level": 2}


def test_an_annotation_that_is_no_type_is_the_plugins_fault(make_entry: Callable[..., Entry]) -> None:
    host = Host(
        [
            make_entry(
                """
                class Odd:
                    pass

                @reward(version=1)
                def strange(completion: str, *, odd: Odd = None, missing: "NoSuchName" = 1) -> float:
                    return 0.0

                @hookimpl
                def grpo_rewards():
                    return [strange]
                """,
                distribution="odd-dist",
            )
        ]
    )
    with pytest.raises(PluginError, match="odd-dist: option 'odd'"):
        host.reward("strange:odd=1")
    with pytest.raises(PluginError, match="option 'missing'"):
        host.reward("strange:missing=1")
    assert host.reward("strange").options == {}


def test_pydantic_is_imported_only_for_a_value() -> None:
    code = (
        "import sys; from grpo.plugins.host import Host; Host.discover(); "
        "print([name for name in ('pydantic', 'gymnasium', 'torch', 'transformers', 'trl', 'datasets', 'numpy') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

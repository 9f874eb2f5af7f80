"""Settings as their declarations say: types and bounds in words, defaults, and that nothing open is left unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import TrainSection
from grpo.core.config.setting import About, plain, settings_of

SETTINGS = settings_of(RunConfig)


class Sample(BaseModel):
    whole: Annotated[Annotated[int, Field(ge=2)] | None, About("A.", "B.", left_out="the `other`")] = None
    between: Annotated[Annotated[float, Field(ge=0, le=1)], About("A.")] = 0.5
    open_ended: Annotated[Annotated[float, Field(gt=0, le=1)], About("A.")] = 1e-6
    below: Annotated[Annotated[float, Field(ge=0, lt=1)], About("A.", kind="seconds")] = 0.0
    word: Annotated[Literal["a", "b"] | None, About("A.", left_out="a")] = None
    several: Annotated[tuple[Literal["a", "b"], ...] | Literal["all"], About("A.")] = "all"
    switch: Annotated[bool, About("A.")] = True
    file: Annotated[Path, About("A.")]


@pytest.mark.parametrize(
    ("key", "kind", "default"),
    [
        ("whole", "int ≥ 2", "the `other`"),
        ("between", "float ≥ 0, ≤ 1", "`0.5`"),
        ("open_ended", "float > 0, ≤ 1", "`1e-06`"),
        ("below", "seconds ≥ 0, < 1", "`0.0`"),
        ("word", "`a`, `b`", "a"),
        ("several", "list of `a`, `b`, or `all`", '`"all"`'),
        ("switch", "bool", "`true`"),
        ("file", "path", "required"),
    ],
)
def test_a_type_and_a_default_are_told_as_they_are_declared(key: str, kind: str, default: str) -> None:
    setting = settings_of(Sample)[key]
    assert (setting.kind, setting.default_text) == (kind, default)


def test_a_field_without_a_text_is_no_setting() -> None:
    class Bare(BaseModel):
        train: TrainSection
        steps: int = 1

    with pytest.raises(TypeError, match=r"the setting steps has no text\. Declare it with setting"):
        settings_of(Bare)


def test_a_setting_that_may_be_left_open_says_what_stands_for_it_then() -> None:
    for setting in SETTINGS.values():
        assert (setting.default is None and not setting.required) == bool(setting.about.left_out), setting.key


def test_the_texts_are_sentences_that_stand_in_one_cell_of_a_table() -> None:
    for setting in SETTINGS.values():
        text, more = setting.about.text, setting.about.more
        assert text.endswith((".", ":") if more else "."), setting.key
        assert more.endswith(".") or not more, setting.key
        assert not set("|\n") & set(setting.text + setting.default_text + setting.kind), setting.key


def test_plain_text_names_the_files_that_links_lead_to() -> None:
    assert plain("Ours ([kernels](kernels.md)); `hf`, see [several](environments.md#several).") == (
        "Ours (docs/kernels.md); hf, see docs/environments.md."
    )

"""The two pages of commands are true: a section for each command, options that exist, lines that parse."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from grpo.core.cli.main import COMMANDS, cli
from grpo.core.cli.show import find_plugin
from grpo.plugins.host import Host

PAGES = Path(__file__).resolve().parents[3] / "docs"
PAGE = "\n".join((PAGES / name).read_text(encoding="utf-8") for name in ("commands.md", "runs.md"))
SECTIONS = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
SHOWN = re.findall(r"^    \$ grpo (.+)$", PAGE, re.MULTILINE)


def command_named(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_every_command_has_a_section_with_an_example() -> None:
    assert list(SECTIONS) == list(COMMANDS)
    for name, text in SECTIONS.items():
        assert f"    $ grpo {name} " in text or f"    $ grpo {name}\n" in text


def options_of(command: click.Command) -> set[str]:
    nested = command.commands.values() if isinstance(command, click.Group) else ()
    own = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return own.union(*map(options_of, nested))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_a_section_names_exists(name: str) -> None:
    prose = re.sub(r"^    .*$", "", SECTIONS[name], flags=re.MULTILINE)
    named = set(re.findall(r"`(--?[a-z][a-z-]*)", prose))
    assert named <= options_of(command_named(name)) | options_of(command_named("run"))


@pytest.mark.parametrize("line", SHOWN)
def test_the_commands_on_the_page_parse(line: str) -> None:
    name, *arguments = shlex.split(line)
    command = command_named(name)
    while isinstance(command, click.Group) and arguments:
        subcommand = command.get_command(click.Context(command), arguments.pop(0))
        assert subcommand is not None
        command = subcommand
    command.make_context(name, arguments).close()


def test_plugins_that_a_page_shows_have_that_name() -> None:
    pages = [*PAGES.glob("*.md"), PAGES.parent / "README.md"]
    named = {
        name for page in pages for name in re.findall(r"grpo plugins show ([a-z][\w:.-]*)", page.read_text("utf-8"))
    }
    assert len(named) >= 4
    for name in named - {"closeness"}:  # the example of writing-rewards.md
        assert find_plugin(Host.discover(), name)


def test_the_defaults_that_help_names_are_those_of_the_code() -> None:
    from grpo.core.cli.runs import SHOWN as SHOWN_BY_DEFAULT
    from grpo.core.config.defaults import EMBEDDED_COMPLETION, NAMED_COMPLETION
    from grpo.core.env.episodes import UNBOUNDED
    from grpo.core.measure.model import Choices

    help_of = {
        (name, option.opts[0]): option.help or ""
        for name in ("show", "eval", "generate")
        for option in command_named(name).params
        if isinstance(option, click.Option)
    }
    assert f"Default: {SHOWN_BY_DEFAULT}." in help_of["show", "--limit"]
    assert f"Default: {Choices().batch_size}." in help_of["eval", "--batch-size"]
    assert f"{UNBOUNDED} where the environment makes its own" in help_of["eval", "--size"]
    lengths = f"the run's; {EMBEDDED_COMPLETION} for the embedded model, {NAMED_COMPLETION} else"
    assert lengths in help_of["eval", "--max-completion-length"]
    assert lengths in help_of["generate", "--max-new-tokens"]

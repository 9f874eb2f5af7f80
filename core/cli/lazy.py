"""Provides a group of commands whose modules are imported when they are used."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

import click

from grpo.plugins.errors import UsageError, did_you_mean


class LazyGroup(click.Group):
    """A group that knows some commands by name. `later`: name to module and attribute, as in "package.module:name"."""

    def __init__(self, *args: Any, later: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.later])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.later:
            return super().get_command(ctx, cmd_name)
        command = pkgutil.resolve_name(self.later[cmd_name])
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            raise UsageError(self.unknown(args[0], did_you_mean(args[0], names)))
        return super().resolve_command(ctx, args)

    def unknown(self, name: str, meant: str) -> str:
        """Returns what to say of a command that is not there; `meant` asks for the closest, "" where none is."""
        return f"grpo {self.name} has no command '{name}'.{meant} List them with: grpo {self.name} --help"

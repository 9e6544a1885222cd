"""The help of a command with subcommands: the whole first sentence of each, however narrow the terminal is.

click cuts these sentences to one line each, and sorts the commands by name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from typing_extensions import override

_SENTENCE_LENGTH_MAX = 1_000
_WORDS_OF_OTHERS = {
    "topic": "stream",
    "topics": "stream",
    "acl": "access",
    "acls": "access",
    "broker": "server",
    "brokers": "server",
}
"""Commands that a user of Kafka looks for, and ours. click would suggest `top` for `topics`."""


class CommandGroup(click.Group):
    """A command with subcommands, listed under headings if there are any."""

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Sequence[click.Command]] | None = None, **options: Any
    ) -> None:
        """`sections`: the commands by heading, in the order of the help. None: `add_command` adds them."""
        super().__init__(*arguments, **options)
        self._sections = dict(sections or {})
        for command in (command for commands in self._sections.values() for command in commands):
            self.add_command(command)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ours = _WORDS_OF_OTHERS.get(args[0])
        if ours in self.commands and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {ours!r}?")
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self._sections or {"Commands": [self.commands[name] for name in self.list_commands(ctx)]}
        width = max(len(command.name or "") for commands in sections.values() for command in commands)
        for heading, commands in sections.items():
            rows = [
                ((command.name or "").ljust(width), command.get_short_help_str(_SENTENCE_LENGTH_MAX))
                for command in commands
                if not command.hidden
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

"""The help of a command with subcommands: the whole first sentence of each, however narrow the terminal is.

click cuts these sentences to one line each, and sorts the commands by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import click
from typing_extensions import override

COMPLETION_VARIABLE = "_BEARLAKE_COMPLETE"
"""The variable by which a shell asks for completions (click's convention)."""

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

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[str]] | None = None, **options: Any) -> None:
        """`sections`: the names of the commands by heading, in the order of the help. None: all commands under one heading."""
        super().__init__(*arguments, **options)
        self._sections = dict(sections or {})

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
        named = self._sections or {"Commands": self.list_commands(ctx)}
        sections = {heading: [self.commands[name] for name in names] for heading, names in named.items()}
        width = max(len(command.name or "") for commands in sections.values() for command in commands)
        for heading, commands in sections.items():
            rows = [
                ((command.name or "").ljust(width), command.get_short_help_str(_SENTENCE_LENGTH_MAX))
                for command in commands
                if not command.hidden
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


class Commands(MutableMapping[str, click.Command]):
    """Commands by name; a command is loaded when it is looked up."""

    def __init__(self, names: Iterable[str], load: Callable[[str], click.Command]) -> None:
        self._found: dict[str, click.Command | None] = dict.fromkeys(names)
        self._load = load

    @override
    def __getitem__(self, name: str) -> click.Command:
        found = self._found[name]
        if found is None:
            found = self._found[name] = self._load(name)
        return found

    @override
    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    @override
    def __delitem__(self, name: str) -> None:
        del self._found[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    @override
    def __len__(self) -> int:
        return len(self._found)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._found

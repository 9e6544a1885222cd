"""The commands of `bearlake`. Each file of commands is loaded when one of its commands is used.

All of them together take 3 MB, which every server would keep, and a tenth of its start (decision 362).
"""

import click

from bearlake.cli.command_group import Commands

SECTIONS = {
    "Start": ("up", "serve", "console", "tour", "doctor", "config"),
    "Streams": ("stream", "produce", "consume", "group", "transaction"),
    "Tables": ("sql", "table", "compaction"),
    "Operation": ("top", "server", "backup", "restore", "hold"),
    "Access": ("user", "access", "quota"),
    "Other clusters": ("import", "export"),
    "Shell": ("completion",),
}
"""Commands by heading, in the order of the help."""
HIDDEN = ("executor",)


def all_commands() -> Commands:
    """Return the commands of `bearlake`."""
    return Commands([*(name for names in SECTIONS.values() for name in names), *HIDDEN], _load)


def _load(name: str) -> click.Command:
    match name:
        case "up":
            from bearlake.cli.up import up

            return up
        case "serve" | "executor":
            from bearlake.cli import serve

            return serve.serve if name == "serve" else serve.executor
        case "backup" | "restore" | "hold":
            from bearlake.cli import backup

            return {"backup": backup.backup, "restore": backup.restore, "hold": backup.hold}[name]
        case "stream" | "produce" | "consume" | "group" | "transaction":
            return _of_streams(name)
        case "sql" | "table" | "compaction":
            return _of_tables(name)
        case "user" | "access" | "quota":
            return _of_access(name)
        case "import" | "export":
            return _of_other_clusters(name)
        case _:
            return _of_operation(name)


def _of_streams(name: str) -> click.Command:
    match name:
        case "stream":
            from bearlake.cli.stream import stream

            return stream
        case "produce":
            from bearlake.cli.produce import produce

            return produce
        case "consume":
            from bearlake.cli.consume import consume

            return consume
        case "group":
            from bearlake.cli.group import group

            return group
        case _:
            from bearlake.cli.transaction import transaction

            return transaction


def _of_tables(name: str) -> click.Command:
    match name:
        case "sql":
            from bearlake.cli.sql import sql

            return sql
        case "table":
            from bearlake.cli.table import table

            return table
        case _:
            from bearlake.cli.compaction import compaction

            return compaction


def _of_access(name: str) -> click.Command:
    match name:
        case "user":
            from bearlake.cli.user import user

            return user
        case "access":
            from bearlake.cli.access import access

            return access
        case _:
            from bearlake.cli.quota import quota

            return quota


def _of_other_clusters(name: str) -> click.Command:
    if name == "export":
        from bearlake.cli.exporting import export

        return export
    from bearlake.cli.importing import import_
    from bearlake.cli.importing_pulsar import pulsar

    import_.add_command(pulsar)
    return import_


def _of_operation(name: str) -> click.Command:
    match name:
        case "tour":
            from bearlake.cli.tour import tour

            return tour
        case "console":
            from bearlake.cli.console import console

            return console
        case "doctor":
            from bearlake.cli.doctor import doctor

            return doctor
        case "config":
            from bearlake.cli.config import config

            return config
        case "top":
            from bearlake.cli.top.command import top

            return top
        case "server":
            from bearlake.cli.server import server

            return server
        case "completion":
            from bearlake.cli.completion import completion

            return completion
        case _:
            raise KeyError(name)

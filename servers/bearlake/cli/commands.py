"""The commands of `bearlake`. Each file of commands is loaded when one of its commands is used.

All of them together take 3 MB, which every server would keep, and a tenth of its start (decision 362).
"""

from importlib import import_module
from typing import cast

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

_MODULES = {
    "executor": "serve",
    "export": "exporting",
    "hold": "backup",
    "import": "importing",
    "restore": "backup",
    "top": "top.command",
}
"""Modules of commands that do not have the command's name."""


def all_commands() -> Commands:
    """Return the commands of `bearlake`."""
    return Commands([*(name for names in SECTIONS.values() for name in names), *HIDDEN], _load)


def _load(name: str) -> click.Command:
    module = import_module(f"bearlake.cli.{_MODULES.get(name, name)}")
    return cast("click.Command", getattr(module, "import_" if name == "import" else name))

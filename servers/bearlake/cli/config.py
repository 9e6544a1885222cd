"""`bearlake config show`: every setting with its value, unit, source and meaning."""

import os
from pathlib import Path

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import server_module
from bearlake.cli.output import json_option


@click.group(cls=CommandGroup)
def config() -> None:
    """Inspect the settings."""


@config.command()
@click.option("--config", "file", type=click.Path(path_type=Path), help="Settings file (YAML).")
@click.option("--changed", is_flag=True, help="Omit settings that have their default value.")
@json_option
def show(file: Path | None, changed: bool, as_json: bool) -> int:
    """Show all settings as a server reads them: defaults, overridden by the file, overridden by BEARLAKE_… variables.

    The output is a valid settings file.
    """
    document = server_module("bearlake.settings.document")
    shown = server_module("bearlake.settings.show")
    loaded = document.load_document(file, os.environ)
    click.echo(shown.as_json(loaded) if as_json else shown.as_yaml(loaded, only_changed=changed), nl=as_json)
    return 0

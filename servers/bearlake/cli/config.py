"""`bearlake config show`: every setting with its value, unit, source and meaning."""

import os
from pathlib import Path

import click

from bearlake.cli.extras import server_module
from bearlake.cli.output import json_option


@click.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@click.option("--config", "file", type=click.Path(path_type=Path), help="Settings file (YAML).")
@click.option("--changed", is_flag=True, help="Leave out settings that have their default.")
@json_option
def show(file: Path | None, changed: bool, as_json: bool) -> int:
    """Show all settings as a server would see them: defaults, then the file, then BEARLAKE_… variables.

    The output is a settings file itself.
    """
    document = server_module("bearlake.settings.document")
    shown = server_module("bearlake.settings.show")
    loaded = document.load_document(file, os.environ)
    click.echo(shown.as_json(loaded) if as_json else shown.as_yaml(loaded, only_changed=changed), nl=as_json)
    return 0

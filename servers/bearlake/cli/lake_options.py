"""Options of commands that open the stores themselves: a data folder, a settings file, or single URLs."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.extras import server_module

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
_SETTINGS = {
    "metadata_url": ("--metadata-url", "metadata.url"),
    "object_store_url": ("--object-store-url", "object_store.url"),
    "catalog_url": ("--catalog-url", "tables.catalog_url"),
}


def lake_options(command: F) -> F:
    """The options `--data-dir`, `--config` and the three URLs."""
    for option in (
        click.option("--catalog-url", metavar="URL", help="Iceberg catalog  [default: that of the folder or file]."),
        click.option("--object-store-url", metavar="URL", help="Object store, likewise."),
        click.option("--metadata-url", metavar="URL", help="Metadata store, likewise."),
        click.option("--config", type=PATH, help="Settings file of a cluster."),
        click.option(
            "--data-dir",
            type=PATH,
            default=Path(".bearlake"),
            show_default=True,
            envvar="BEARLAKE_DATA_DIR",
            help="Data folder of `bearlake up`.",
        ),
    ):
        command = option(command)
    return command


def chosen(given: Mapping[str, Any], extra: str = "sql") -> Any:  # Settings; the module is imported when it is needed
    """Return the settings that the options name. Raises `Invalid`, also when the extra that the command needs is not installed."""
    module = server_module("bearlake.app.lake_settings", extra=extra)
    settings = {path: (given[key], option) for key, (option, path) in _SETTINGS.items() if given.get(key) is not None}
    options = module.LakeOptions(data_dir=given["data_dir"], config=given["config"], options=settings)
    return module.lake_settings(options, os.environ)

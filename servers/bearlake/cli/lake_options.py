"""Options of commands that open the stores themselves: a data folder, a settings file, or single URLs."""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.extras import server_module

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
DATA_DIR = Path(".bearlake")
"""The data folder of `bearlake up` and of the commands that open its stores, unless they name another."""
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
            default=DATA_DIR,
            show_default=True,
            envvar="BEARLAKE_DATA_DIR",
            help="Data folder of `bearlake up`.",
        ),
    ):
        command = option(command)
    return command


def words_for(data_dir: Path, config: Path | None) -> str:
    """Return the options that name these stores, for a line that a user copies into a shell; empty for the default folder."""
    if config is None and data_dir == DATA_DIR:
        return ""
    folder = f" --data-dir {shlex.quote(str(data_dir.absolute()))}"
    return folder if config is None else f"{folder} --config {shlex.quote(str(config.absolute()))}"


def chosen(
    given: Mapping[str, Any],
    extra: str = "sql",
    more: Mapping[str, tuple[object, str]] | None = None,
    *,
    may_be_absent: bool = False,
) -> Any:  # Settings; the module is imported when it is needed
    """Return the settings that the options name. Raises `Invalid`, also when the extra that the command needs is not installed.

    `more`: settings that other options of the command name, by dotted path: (value, option). `may_be_absent`: the command makes the
    metadata store.
    """
    module = server_module("bearlake.app.lake_settings", extra=extra)
    settings = {path: (given[key], option) for key, (option, path) in _SETTINGS.items() if given.get(key) is not None}
    settings.update(more or {})
    data_dir, config = given["data_dir"], given["config"]
    is_cluster = config is not None and data_dir == DATA_DIR
    options = module.LakeOptions(
        data_dir=None if is_cluster else data_dir, config=config, options=settings, may_be_absent=may_be_absent
    )
    return module.lake_settings(options, os.environ)

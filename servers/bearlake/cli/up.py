"""`bearlake up`."""

import os
from pathlib import Path
from typing import Any

import click

from bearlake.cli.extras import server_module
from bearlake.cli.lake_options import DATA_DIR, words_for
from bearlake.cli.server_options import (
    PATH,
    as_settings,
    catalog_port,
    console_port,
    grpc_port,
    kafka_port,
    pulsar_http_port,
    pulsar_port,
    registry_port,
    rest_port,
    server_options,
)


@click.command()
@click.option("--data-dir", type=PATH, default=DATA_DIR, show_default=True, help="Folder for metadata and objects.")
@server_options
@kafka_port
@pulsar_port
@pulsar_http_port
@registry_port
@rest_port
@catalog_port
@grpc_port
@console_port
@click.option(
    "--kafka-processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of server processes, on consecutive ports from --kafka-port.",
)
@click.option(
    "--compaction/--no-compaction",
    default=True,
    help="Start a compaction worker (Spark); without it, records stay in the WAL.",
)
@click.option("--no-tour", is_flag=True, help="Do not run the tour.")
@click.option("--exit-after-tour", is_flag=True, help="Stop after the tour; exit with 0 if it succeeded.")
def up(
    data_dir: Path,
    config: Path | None,
    ready_file: Path | None,
    kafka_processes: int,
    compaction: bool,
    no_tour: bool,
    exit_after_tour: bool,
    **given: Any,
) -> int:
    """Start everything on this machine, and serve until Ctrl-C.

    A short tour produces and consumes 10,000 records. Records and metadata are stored in --data-dir, unless URLs name other stores.
    """
    run = server_module("bearlake.app.run")

    if no_tour and exit_after_tour:
        raise click.UsageError("--no-tour and --exit-after-tour are mutually exclusive")
    code: int = run.up(
        run.UpOptions(
            data_dir=data_dir,
            config=config,
            options=as_settings(given),
            ready_file=ready_file,
            process_count=kafka_processes,
            has_compactor=compaction,
            has_tour=not no_tour,
            exits_after_tour=exit_after_tour,
            stores=words_for(data_dir, config),
        ),
        os.environ,
    )
    return code

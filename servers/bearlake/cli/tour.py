"""`bearlake tour`."""

import functools
from pathlib import Path
from typing import Any

import click

from bearlake.cli.admin_client import admin_option, ca_file_option
from bearlake.cli.extras import server_module
from bearlake.cli.http_client import Tls
from bearlake.cli.kafka_options import address
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import say


@click.command()
@click.option(
    "--bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    envvar="BEARLAKE_BOOTSTRAP",
    callback=address,
    help="Kafka address.",
)
@admin_option
@ca_file_option
@click.option(
    "--table", is_flag=True, help="Then count the records with SQL, and consume them again from the files of the table."
)
@lake_options
def tour(bootstrap: str, admin: str, admin_ca_file: Path | None, table: bool, **given: Any) -> int:
    """Produce and consume 10,000 records, and check them."""
    from bearlake.app import tour as app_tour

    query = None
    if table:
        lake = server_module("bearlake.app.lake", extra="sql")
        settings = chosen(given)
        query = functools.partial(lake.query_rows, settings)
    try:
        tls = Tls(ca_file=admin_ca_file).context() if admin.startswith("https:") else None
        app_tour.run(bootstrap, app_tour.Admin(admin, tls), query)
    except app_tour.TourFailed as error:
        say(f"bearlake: the tour failed: {error}", is_error=True)
        return 1
    return 0

"""`bearlake top`: the command line of the display.

On a terminal it redraws until a key or Ctrl-C ends it. Elsewhere it prints one frame after the other, without colours.
"""

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.output import json_option

INTERVAL_MS = 2_000


@click.command()
@click.option(
    "--interval-ms",
    type=click.IntRange(100, 3_600_000),
    default=INTERVAL_MS,
    show_default=True,
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print the figures of one interval, and end.")
@click.option("--count", type=click.IntRange(1), help="End after this many intervals.")
@click.option(
    "--put-price",
    type=click.FloatRange(0),
    default=0.005,
    show_default=True,
    help="Price of 1,000 PUT or LIST requests.",
)
@click.option(
    "--get-price", type=click.FloatRange(0), default=0.0004, show_default=True, help="Price of 1,000 GET requests."
)
@admin_options
@json_option
def top(
    interval_ms: int,
    once: bool,
    count: int | None,
    put_price: float,
    get_price: float,
    admin: AdminClient,
    as_json: bool,
) -> int:
    """Show rates, lag, freshness and cost, live. `q` or Ctrl-C ends it.

    The figures come from the admin API and from the metrics of every server. The default prices are examples: put in those of your
    provider.
    With --json, each interval is one line of JSON.
    """
    from bearlake.cli.top import display, rates

    course = display.Course(
        interval_s=interval_ms / 1000,
        interval_count=1 if once else count,
        prices=rates.Prices(put=put_price, get=get_price),
    )
    display.run(admin, course, as_json=as_json, is_plain=once)
    return 0

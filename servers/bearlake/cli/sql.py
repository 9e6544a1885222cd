"""`bearlake sql`: one statement over the tables of streams."""

import base64
import datetime
import signal
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import click

from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import print_json, print_table, say
from bearlake.cli.progress import shown_while

CELL_WIDTH_MAX = 60


@click.command()
@click.argument("statement")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON list of row objects; binary values as base64.",
)
@click.option("--compacted", is_flag=True, help="Read only records that compaction has put into the tables.")
@lake_options
def sql(statement: str, as_json: bool, compacted: bool, **given: Any) -> int:
    """Query streams with SQL, with every acknowledged record.

    Each stream is a table of the same name, with every record that was acknowledged before the query.

    \b
    bearlake sql "select _partition_id, count(*) from orders group by 1 order by 1"
    bearlake sql "select _offset, _timestamp, decode(_value) as value from orders order by 2 desc limit 5"
    """
    lake = server_module("bearlake.app.lake", extra="sql")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also then, the folder with the tail's files is deleted
    done = lake.QueryProgress()
    found = run_async(
        shown_while(
            lake.query(chosen(given), statement, done, is_live=not compacted), "querying", lambda: done.fraction
        )
    )
    rows = [dict(zip(found.columns, map(plain, row), strict=True)) for row in found.rows]
    if as_json:
        print_json(rows)
    else:
        print_table(
            [{name: _cell(value) for name, value in row.items()} for row in rows],
            {name: name for name in found.columns},
        )
        say(
            f"({len(rows):,} row{'' if len(rows) == 1 else 's'}{', further rows omitted' if found.is_truncated else ''})",
            is_error=True,
        )
    return 0


def plain(value: Any) -> Any:  # whatever SQL returns
    """The value as JSON has it: bytes as text if they are UTF-8, else as `base64:…`; times in ISO 8601."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case Decimal() | UUID() | datetime.timedelta():
            return str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence() if not isinstance(value, str):
            return [plain(item) for item in value]
    return value


def _cell(value: Any) -> Any:  # as above
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = "NULL" if value is None else str(value).replace("\n", "\\n")
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"

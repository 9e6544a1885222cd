"""`bearlake backup`, `restore` and `hold`: backups of the metadata store that are consistent with the object store."""

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import PATH, chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table, say
from bearlake.cli.progress import Progress

DAY_MS = 24 * 3_600_000


@click.command()
@click.argument("folder", type=PATH)
@click.option(
    "--valid-days",
    type=click.FloatRange(0.001, 3650),
    default=7,
    show_default=True,
    help="How long the backup can be restored: nothing that it needs is deleted.",
)
@lake_options
@json_option
def backup(folder: Path, valid_days: float, as_json: bool, **given: Any) -> int:
    """Back up the metadata store to FOLDER while servers run.

    The command makes the folder. Records stay in the object store: the backup names their objects, and compaction workers keep these until
    the backup's hold ends. Keep the folder on another machine. It has the users' credentials in the form in which the store has them.
    """
    taking = server_module("bearlake.app.backup.taking", extra="sql")
    settings = chosen(given)
    progress = _Steps("backing up", is_quiet=as_json)
    with contextlib.closing(progress):
        made = run_async(taking.take(settings, folder, valid_ms=round(valid_days * DAY_MS), on_progress=progress.tell))
    found = {
        "id": made.id,
        "folder": str(folder.absolute()),
        "taken": _time(made.taken_ms),
        "valid_until": _time(made.expires_ms),
        "store": made.store.kind,
        "layout": made.store.layout,
        "position": made.store.position,
        "object_count": made.store.object_count,
    }
    if as_json:
        print_json(found)
        return 0
    say(f"backup {made.id} in {folder}", is_bold=True)
    say(
        f"  {made.store.kind} store of layout {made.store.layout}, as of {found['taken']}, log position {made.store.position:,}"
    )
    say(f"  its {made.store.object_count:,} objects are kept until {found['valid_until']}")
    return 0


@click.command()
@click.argument("folder", type=PATH)
@click.option("--replace", is_flag=True, help="Put the backup in the place of the metadata store that is there.")
@click.option("--allow-missing", is_flag=True, help="Restore even if objects are missing; their records are lost.")
@click.option(
    "--offset-gap",
    type=click.IntRange(0),
    help="Offsets that each partition skips, since the lost store may have given them. 0 only if no server ran after the backup."
    "  [default: 100,000 per second since the backup, at least 1,000,000,000, and as many for each earlier restore]",
)
@lake_options
@json_option
def restore(
    folder: Path, replace: bool, allow_missing: bool, offset_gap: int | None, as_json: bool, **given: Any
) -> int:
    """Restore the metadata store from the backup in FOLDER. Stop all servers and workers of the lost store first.

    Records that were acknowledged after the backup are lost. If the command is interrupted, run it again.
    """
    restoring = server_module("bearlake.app.backup.restoring", extra="sql")
    settings = chosen(given, may_be_absent=True)
    progress = _Steps("restoring", is_quiet=as_json)
    with _data_folder(given), contextlib.closing(progress):
        done = run_async(
            restoring.restore(
                settings,
                folder,
                may_replace=replace,
                may_lack=allow_missing,
                offset_gap=offset_gap,
                on_progress=progress.tell,
            )
        )
    found = {
        "restore": done.restore,
        "id": done.manifest.id,
        "taken": _time(done.manifest.taken_ms),
        "offset_gap": done.offset_gap,
        "partition_count": done.partition_count,
        "aborted_count": done.aborted_count,
        "table_count": done.table_count,
        "missing": done.missing,
    }
    if as_json:
        print_json(found)
        return 0
    say(f"the metadata store is that of {found['taken']} again", is_bold=True)
    say(f"  {done.partition_count:,} partitions skip {done.offset_gap:,} offsets")
    say(f"  {done.aborted_count:,} open transactions were aborted, {done.table_count:,} tables were put back")
    if done.missing:
        say(f"  {len(done.missing):,} objects are missing, and their records are lost")
    say("  start the servers now; producers of transactions and idempotent producers begin anew")
    return 0


@click.group(cls=CommandGroup)
def hold() -> None:
    """List and end holds: what workers keep for a backup."""


@hold.command("list")
@lake_options
@json_option
def list_holds(as_json: bool, **given: Any) -> int:
    """List the backups whose objects are kept."""
    holding = server_module("bearlake.app.backup.holding", extra="sql")
    rows = [
        {
            "id": found.id,
            "state": "taken" if found.is_taken else "begun",
            "taken": _time(found.taken_ms if found.is_taken else found.began_ms),
            "valid_until": _time(found.expires_ms),
        }
        for found in run_async(holding.holds(chosen(given)))
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            rows, {"id": "BACKUP", "state": "STATE", "taken": "TAKEN (UTC)", "valid_until": "VALID UNTIL (UTC)"}
        )
    else:
        say("no backup holds objects")
    return 0


@hold.command()
@click.argument("backup_id")
@lake_options
@json_option
def release(backup_id: str, as_json: bool, **given: Any) -> int:
    """End the hold of a backup, which can then no longer be restored."""
    holding = server_module("bearlake.app.backup.holding", extra="sql")
    run_async(holding.release(chosen(given), backup_id))
    if as_json:
        print_json({"released": backup_id})
    else:
        say(f"the hold of backup {backup_id} has ended")
    return 0


class _Steps:
    """The progress line of each step in turn."""

    def __init__(self, verb: str, *, is_quiet: bool) -> None:
        self._verb = verb
        self._is_quiet = is_quiet
        self._step = ""
        self._line = Progress(verb, is_quiet=is_quiet)

    def tell(self, progressed: Any) -> None:  # a `Progressed`
        """Show how far the step is; may be called from any thread."""
        if progressed.step != self._step:
            self._step = progressed.step
            self._line.clear()
            self._line = Progress(self._verb, progressed.step, is_quiet=self._is_quiet)
        self._line.show(progressed.count)

    def close(self) -> None:
        """Remove the line."""
        self._line.clear()


@contextlib.contextmanager
def _data_folder(given: dict[str, Any]) -> Iterator[None]:
    """Hold the lock of the data folder, unless a settings file or a URL names the store."""
    if given["config"] is not None or given["metadata_url"] is not None:
        yield
        return
    with server_module("bearlake.app.embedded").locked(given["data_dir"]):
        yield


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")

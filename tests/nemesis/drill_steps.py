"""Parts of the drill that need no other state of it: a restore that is killed, and the members of a share group afterwards.

A restore is killed once the restored store is there and not whole yet. No command may open that store, until the same restore has run
again (docs/operations.md, "Backup and restore").
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from faults.waiting import until
from nemesis.clients import sharing
from nemesis.recording import Recording
from nemesis.stores import Postgresql
from simulator.history.model import Take
from simulator.history.reader import read_files

KILL_S = 60.0
SHARED_IDLE_S = 3.0
"""Time without a record, beyond that of a lock, after which a share group is done."""
SHARED_S = 90.0
HAS_LAYOUT = "select to_regclass('bearlake.migration') is not null as is_so"
IS_FILLED = "select coalesce(max(version), 0) >= 1000000 as is_so from bearlake.migration"


def killed(process: "subprocess.Popen[bytes]", postgresql: Postgresql, database: str) -> bool:
    """Kill the restore while it fills the database; return whether it left a store that is not whole."""

    def is_so(question: str) -> bool:
        return bool(postgresql.execute(question, database=database)[0]["is_so"])

    def is_filled() -> bool:
        return is_so(HAS_LAYOUT) and is_so(IS_FILLED)

    try:
        until(lambda: is_filled() or process.poll() is not None, KILL_S, "a restore fills the store")
    finally:
        process.kill()
        process.wait(KILL_S)
    return is_filled()


def drained(addresses: list[str], folder: Path, name: str) -> tuple[dict[tuple[str, int], set[int]], list[str]]:
    """Let a new member of the share group take records until it gets none for longer than a lock lasts.

    Returns the offsets that it was given by partition, and problems. `folder`: for its history, which is not one of the run's.
    """
    folder.mkdir()
    path = folder / "shared.jsonl"
    problems: list[str] = []
    member = sharing.Member(addresses, name, Recording(path, name))
    begun_s = last_s = time.monotonic()
    try:
        while time.monotonic() - last_s < sharing.LOCK_S + SHARED_IDLE_S:
            if member.step():
                last_s = time.monotonic()
            if last_s - begun_s > SHARED_S:
                problems.append(f"the restored share group has records for more than {SHARED_S:g} s")
                break
    finally:
        member.close()
    given: dict[tuple[str, int], set[int]] = {}
    for operation in read_files([path]):
        if isinstance(call := operation.call, Take):
            given.setdefault((call.log.topic, call.log.partition), set()).update(call.offsets)
    return given, problems


def refusal(finished: Callable[..., "subprocess.CompletedProcess[bytes]"]) -> str | None:
    """Return how a command opened the store of a killed restore; None: it was refused in words."""
    done = finished("user", "list")
    if done.returncode and b"has not ended" in done.stderr:
        return None
    text = done.stderr.decode(errors="replace").strip()[-200:]
    return f"a command on the store of a killed restore ended with {done.returncode}: {text}"

"""The backups of a run, and the copy of the object store that one of them is restored with."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from nemesis.backups import Backup, Backups
from nemesis.recording import now
from nemesis.stores import Storage


def put(storage: Storage, folder: Path, key: str, text: str) -> Path:
    """Store an object as the S3 server does: a new file of that name."""
    path = folder / "buckets" / storage.bucket / "bearlake" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_copy_keeps_the_objects_that_the_run_deletes_later(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "s3", "versitygw")
    kept = put(storage, tmp_path / "s3", "wal/2026112800/one", "first")

    copy = storage.copy(tmp_path / "copy")
    kept.unlink()
    put(storage, tmp_path / "s3", "wal/2026112800/two", "second")

    assert copy.keys("wal/") == ["wal/2026112800/one"]
    assert storage.keys("wal/") == ["wal/2026112800/two"]
    assert copy.base == storage.base
    copy.remove()
    assert copy.keys("wal/") == []


def test_the_end_of_a_backup_is_seen_without_waiting_for_it(tmp_path: Path) -> None:
    backups = Backups(cast(Any, SimpleNamespace(seed=1, folder=tmp_path)))
    answer = "import json; print(json.dumps({'id': 'x', 'object_count': 7}))"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, **pipes)
    ended = subprocess.Popen([sys.executable, "-c", answer], **pipes)
    ended.wait(60)
    first, second = (Backup(tmp_path, process, 0.0, now()) for process in (running, ended))

    assert not backups.has_ended(first)
    assert backups.has_ended(second)
    assert (second.id, second.object_count, backups.taken_count) == ("x", 7, 1)
    assert second.ended > second.begun
    running.communicate(b"", timeout=60)

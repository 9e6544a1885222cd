"""The copy of the object store that a backup is restored with."""

from pathlib import Path

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

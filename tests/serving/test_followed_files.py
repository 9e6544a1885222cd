"""Files that a server reads again after they have changed."""

import os
from pathlib import Path

from bearlake.serving.files import FollowedFiles


def test_a_file_of_the_same_size_and_time_has_changed(tmp_path: Path) -> None:
    """As after `cp --preserve` or `rsync --inplace`."""
    path = tmp_path / "crl.pem"
    path.write_text("first")
    before = os.stat(path)
    files = FollowedFiles([str(path)], pause_ms=0)
    assert not files.have_changed()

    path.write_text("other")
    while (
        os.stat(path).st_ctime_ns == before.st_ctime_ns
    ):  # until the file system's clock has moved on, a few milliseconds
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert files.have_changed()

"""Files that a server reads again after they have changed."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bearlake.serving.admin.token import AdminToken
from bearlake.serving.files import FollowedFiles


@contextmanager
def no_descriptors() -> Iterator[None]:
    """A block in which this process can open no file, as one with too many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


def test_a_change_is_seen_again_after_the_process_could_open_no_file(tmp_path: Path) -> None:
    """Otherwise a leaked token, a revoked certificate or an old one stays in use until the next change."""
    path = tmp_path / "token"
    path.write_text("first-token-of-16")
    now_s = 0.0
    token = AdminToken("first-token-of-16", str(path), now_s=lambda: now_s)
    path.write_text("other-token-of-16")

    with no_descriptors():
        now_s += 1
        assert token.accepted() == ["first-token-of-16"]
    now_s += 1

    assert token.accepted() == ["other-token-of-16"]

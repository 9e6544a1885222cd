"""Restores into a SQLite store whose place cannot be written: they end in words, and the same command completes them later."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from bearlake.errors import BearlakeError, Denied, OutOfRoom, Unavailable
from fixtures.backed_up import Place, lose_time, write_parts

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, OutOfRoom),
        (errno.EDQUOT, OutOfRoom),
        (errno.EACCES, Denied),
        (errno.EROFS, Unavailable),
        (errno.EIO, Unavailable),
    ],
)
async def test_a_copy_that_cannot_be_placed_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[BearlakeError]
) -> None:
    place = Place(tmp_path, f"sqlite://{tmp_path}/metadata.db")
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
        await lose_time(lake)

    def refused(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(target))

    monkeypatch.setattr(shutil, "copyfile", refused)
    with pytest.raises(BearlakeError, match=os.strerror(code)) as caught:
        await place.restore()
    assert type(caught.value) is kind

    monkeypatch.undo()
    await place.restore()
    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == before

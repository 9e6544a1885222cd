"""Stores are opened by their URLs."""

import random
from pathlib import Path

import pytest

from bearlake.errors import Denied, Invalid, Unavailable
from bearlake.objects import ByteRange, ObjectStore
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.fault_settings import InjectedFaults
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.objects.retrying import RetrySettings
from fixtures.s3 import S3Server


async def put_and_read(store: ObjectStore) -> bytes:
    await store.put("wal/one", [b"content"])
    [view] = await store.read("wal/one", [ByteRange(0, 7)])
    await store.close()
    return bytes(view)


async def test_a_file_url_opens_the_folder_and_makes_it(tmp_path: Path) -> None:
    folder = tmp_path / "made here" / "objects"

    assert await put_and_read(open_store(f"file://{tmp_path}/made%20here/objects")) == b"content"
    assert (folder / "wal" / "one").read_bytes() == b"content"


async def test_a_memory_url_opens_an_empty_store() -> None:
    assert await put_and_read(open_store("memory:///")) == b"content"
    assert [found async for found in open_store("memory:///").list("")] == []


async def test_stores_of_different_prefixes_in_one_bucket_do_not_see_each_other(
    s3_server: S3Server, s3_bucket: str, s3_credentials: None
) -> None:
    settings = ObjectStoreSettings(cloud=CloudSettings(endpoint=s3_server.endpoint))
    first, second, whole = (
        open_store(f"s3://{s3_bucket}{prefix}", settings) for prefix in ("/deep/one", "/deep/other/", "")
    )
    await first.put("wal/1", [b"one"])
    await second.put("wal/2", [b"other"])

    assert [found.key async for found in first.list("")] == ["wal/1"]
    assert [found.key async for found in second.list("wal/")] == ["wal/2"]
    assert [found.key async for found in whole.list("")] == ["deep/one/wal/1", "deep/other/wal/2"]


async def test_endpoint_and_credentials_come_from_the_environment(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)

    assert await put_and_read(open_store(f"s3://{s3_bucket}/prefix")) == b"content"


async def test_faults_are_injected_below_the_retries_and_only_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    settings = ObjectStoreSettings(faults=InjectedFaults(error_fraction=0.5), retry=RetrySettings(pause_first_ms=0))
    all_ = ObjectStoreSettings(faults=InjectedFaults(error_fraction=1.0), retry=RetrySettings(pause_first_ms=0))

    assert await put_and_read(open_store("memory:///", randomness=random.Random(1))) == b"content"
    assert not caplog.records
    assert await put_and_read(open_store("memory:///", settings, randomness=random.Random(1))) == b"content"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(Unavailable, match="injected"):
        await put_and_read(open_store("memory:///", all_))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "folder",
        "/folder",
        "ftp://host/folder",
        "file://host/folder",
        "file://folder",
        "file:///",
        "memory://name",
        "memory:///folder",
        "s3://",
        "s3:///prefix",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket/prefix?region=x",
        "s3://bucket/prefix#x",
        "s3://key:secret@bucket/prefix",
        "s3://bucket:80/prefix",
        "s3://[bucket/prefix",
    ],
)
def test_a_url_that_names_no_store_is_invalid(url: str) -> None:
    with pytest.raises(Invalid, match="object store URL"):
        open_store(url)


def test_an_error_about_a_url_shows_no_credentials() -> None:
    with pytest.raises(Invalid) as caught:
        open_store("s3://key:secret@bucket/prefix")

    assert "secret" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises((Denied, Invalid, Unavailable)):
        open_store(f"file://{tmp_path}/file/objects")

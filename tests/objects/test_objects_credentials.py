"""S3 keys from a file: what a store sends to a real HTTP server, before and after the file was replaced."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bearlake.errors import Invalid, NotFound
from bearlake.objects import ByteRange
from bearlake.objects.cloud_credentials import READ_PAUSE_S, follow
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.open import ObjectStoreSettings, open_store

KEYS = "[default]\naws_access_key_id = {0}-id\naws_secret_access_key = {0}-secret\n"


class Recorder:
    """An HTTP server without objects that records the caller of each request."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.endpoint = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.heads.append(head.decode())
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            break
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    made = Recorder()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()
    await server.wait_closed()


async def test_a_store_signs_with_the_keys_of_the_file(recorder: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(KEYS.format("first") + "aws_session_token = passing\n")
    cloud = CloudSettings(endpoint=recorder.endpoint, region="eu-north-1", credentials_file=str(file))
    store = open_store("s3://bucket/lake", ObjectStoreSettings(cloud=cloud))

    with pytest.raises(NotFound):
        await store.read("a", [ByteRange(0, 1)])
    await store.close()

    assert re.findall(r"Credential=([^/]+)/", recorder.heads[0]) == ["first-id"]
    assert re.findall(r"x-amz-security-token: (.*)\r", recorder.heads[0]) == ["passing"]
    assert "secret" not in recorder.heads[0].replace("x-amz-security", "")


def test_the_file_is_read_again_when_the_keys_expire(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(KEYS.format("first"))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    provide = follow(str(file), lambda: now)
    first = provide()

    file.write_text(KEYS.format("second"))
    second = provide()
    file.write_text("[default")
    damaged = provide()

    assert (first["access_key_id"], first["secret_access_key"], first["token"]) == ("first-id", "first-secret", None)
    assert first["expires_at"] == now + timedelta(seconds=300 + READ_PAUSE_S)
    assert (second["access_key_id"], damaged["access_key_id"]) == ("second-id", "second-id")


@pytest.mark.parametrize("text", [None, "", "secret", "[default]\naws_access_key_id = a\n", "[other]\na = b\n"])
def test_an_invalid_file_is_refused_without_its_content(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)

    with pytest.raises(Invalid, match=r"^object_store\.cloud\.credentials_file: ") as caught:
        follow(str(file))
    assert "secret" not in str(caught.value).replace("aws_secret_access_key", "")

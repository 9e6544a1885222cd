"""The cloud store against a scripted HTTP server: its requests, and its handling of unusual answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from obstore.store import GCSStore

from bearlake.errors import AlreadyExists, BearlakeError, Denied, NotFound, Unavailable, Unsupported
from bearlake.objects import ByteRange
from bearlake.objects.cloud import CloudObjectStore, open_azure, open_s3
from bearlake.objects.cloud_settings import CloudSettings
from fixtures.s3 import S3Server
from fixtures.waiting import WAIT_S

CONFLICT = (
    b"<Error><Code>ConditionalRequestConflict</Code><Message>The conditional request cannot succeed</Message></Error>"
)
NO_BUCKET = b"<Error><Code>NoSuchBucket</Code></Error>"
NO_KEY = b"<Error><Code>NoSuchKey</Code></Error>"

Answer = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request head with the next of `answers`, or the last one again; records the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.endpoint = ""
        self.writers: set[asyncio.StreamWriter] = set()
        self.asked = asyncio.Event()
        self.stopping = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.heads.append(head.lower())
                self.asked.set()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await answer(head.lower(), reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    def replies(self, status: str, body: bytes = b"", *, reads_body: bool = True, more: str = "") -> Answer:
        async def answer(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if reads_body:
                self.bodies.append(await reader.readexactly(content_length(head)))
            is_head = head.startswith("head ")
            writer.write(f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode())
            writer.write(b"" if is_head else body)

        return answer

    def says_nothing(self) -> Answer:
        async def answer(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.stopping.wait()

        return answer

    def hangs_up(self) -> Answer:
        async def answer(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        return answer


def content_length(head: str) -> int:
    [length] = [line.split(":")[1] for line in head.splitlines() if line.startswith("content-length:")] or ["0"]
    return int(length)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    listener = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.endpoint = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    yield served
    served.stopping.set()
    listener.close()
    for writer in served.writers:  # the client keeps its connections open
        writer.transport.abort()
    await listener.wait_closed()


@pytest.fixture
def store(server: Server, s3_credentials: None) -> CloudObjectStore:
    return open_s3("bucket", "prefix", CloudSettings(endpoint=server.endpoint, request_deadline_ms=300))


async def test_a_put_is_one_conditional_unsigned_request_with_the_whole_body(
    server: Server, store: CloudObjectStore
) -> None:
    server.answers = [server.replies("200 OK", more='ETag: "x"\r\n')]
    parts = [bytes([at]) * 1_000_000 for at in range(9)]
    await store.put("wal/one", parts)

    [head] = server.heads
    assert head.startswith("put /bucket/prefix/wal/one http/1.1")
    assert "if-none-match: *" in head
    assert "x-amz-content-sha256: unsigned-payload" in head
    assert server.bodies == [b"".join(parts)]


async def test_a_signed_payload_is_a_setting(server: Server, s3_credentials: None) -> None:
    store = open_s3("bucket", None, CloudSettings(endpoint=server.endpoint, sign_payload=True))
    server.answers = [server.replies("200 OK", more='ETag: "x"\r\n')]
    await store.put("wal/one", [b"content"])

    assert "unsigned-payload" not in server.heads[0]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        ("412 Precondition Failed", b"", AlreadyExists),
        ("500 Internal Server Error", b"", Unavailable),
        ("503 Slow Down", b"", Unavailable),
        ("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>", Denied),
        ("401 Unauthorized", b"", Denied),
        ("404 Not Found", NO_BUCKET, Unavailable),
        ("400 Bad Request", b"<Error><Code>ExpiredToken</Code></Error>", Unavailable),
        ("307 Temporary Redirect", b"", Unavailable),
    ],
)
async def test_a_refused_put_is_one_attempt_and_one_of_our_errors(
    server: Server, store: CloudObjectStore, status: str, body: bytes, kind: type[BearlakeError]
) -> None:
    server.answers = [server.replies(status, body)]
    with pytest.raises(kind) as caught:
        await store.put("wal/one", [b"content"])

    assert caught.value.__cause__ is not None
    assert len(server.heads) == 1


async def test_a_conflict_while_nothing_was_stored_is_unavailable(server: Server, store: CloudObjectStore) -> None:
    """Amazon S3 API, PutObject: 409 ConditionalRequestConflict, "retry the upload"; it does not mean that the object exists."""
    server.answers = [server.replies("409 Conflict", CONFLICT), server.replies("404 Not Found")]

    with pytest.raises(Unavailable):
        await store.put("wal/one", [b"content"])


async def test_a_conflict_with_an_existing_object_is_already_exists(server: Server, store: CloudObjectStore) -> None:
    there = server.replies("200 OK", b"content", more='Last-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\nETag: "x"\r\n')
    server.answers = [server.replies("409 Conflict", CONFLICT), there]

    with pytest.raises(AlreadyExists):
        await store.put("wal/one", [b"content"])


async def test_a_missing_object_is_not_found_but_a_missing_bucket_is_another_error(
    server: Server, store: CloudObjectStore
) -> None:
    server.answers = [server.replies("404 Not Found", NO_KEY)]
    with pytest.raises(NotFound):
        await store.read("wal/one", [ByteRange(0, 1)])

    server.answers = [server.replies("404 Not Found", NO_BUCKET)]
    with pytest.raises(Unavailable):
        await store.read("wal/one", [ByteRange(0, 1)])


async def test_near_ranges_share_a_request_and_distant_ones_do_not(server: Server, s3_credentials: None) -> None:
    settings = CloudSettings(endpoint=server.endpoint, coalesce_gap_bytes=100)
    store = open_s3("bucket", None, settings)

    async def serve_range(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        [wanted] = [line for line in head.splitlines() if line.startswith("range:")]
        start, last = (int(part) for part in wanted.split("=")[1].split("-"))
        body = bytes(at % 256 for at in range(start, last + 1))
        more = f'Content-Range: bytes {start}-{last}/100000\r\nETag: "x"\r\nLast-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\n'
        writer.write(f"HTTP/1.1 206 Partial Content\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    server.answers = [serve_range]
    views = await store.read("wal/one", [ByteRange(5000, 5010), ByteRange(0, 10), ByteRange(110, 120)])

    assert [bytes(view) for view in views] == [
        bytes(at % 256 for at in range(start, end)) for start, end in ((5000, 5010), (0, 10), (110, 120))
    ]
    wanted = sorted(line for head in server.heads for line in head.splitlines() if line.startswith("range:"))
    assert wanted == ["range: bytes=0-119", "range: bytes=5000-5009"]


async def test_a_body_that_breaks_off_is_unavailable(server: Server, store: CloudObjectStore) -> None:
    async def break_off(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        more = 'Content-Range: bytes 0-99/100\r\nETag: "x"\r\nLast-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\n'
        writer.write(f"HTTP/1.1 206 Partial Content\r\n{more}Content-Length: 100\r\n\r\nhalf".encode())
        writer.close()

    server.answers = [break_off]

    with pytest.raises(Unavailable):
        await store.read("wal/one", [ByteRange(0, 100)])


@pytest.mark.parametrize("fault", ["says_nothing", "hangs_up"])
async def test_without_an_answer_every_call_is_unavailable(server: Server, store: CloudObjectStore, fault: str) -> None:
    server.answers = [getattr(server, fault)()]

    with pytest.raises(Unavailable):
        await store.put("wal/one", [b"content"])
    with pytest.raises(Unavailable):
        await store.read("wal/one", [ByteRange(0, 1), ByteRange(900_000, 900_001)])
    with pytest.raises(Unavailable):
        await store.size("wal/one")
    with pytest.raises(Unavailable):
        await store.delete(["wal/one"])
    with pytest.raises(Unavailable):
        await anext(store.list(""))


async def test_an_unreachable_server_is_unavailable(s3_credentials: None) -> None:
    store = open_s3("bucket", None, CloudSettings(endpoint="http://127.0.0.1:1"))

    with pytest.raises(Unavailable):
        await store.put("wal/one", [b"content"])


async def test_after_a_put_timed_out_its_buffers_are_released(server: Server, store: CloudObjectStore) -> None:
    server.answers = [server.says_nothing()]
    buffer = bytearray(8_000_000)
    with pytest.raises(Unavailable):
        await store.put("wal/one", [buffer])

    buffer.extend(b"more")  # BufferError if somebody still held it


async def test_after_a_put_was_cancelled_its_buffers_are_released(server: Server, store: CloudObjectStore) -> None:
    server.answers = [server.says_nothing()]
    buffer = bytearray(8_000_000)
    task = asyncio.create_task(store.put("wal/one", [buffer]))
    await server.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    buffer.extend(b"more")


async def test_an_early_refusal_does_not_wait_for_the_rest_of_the_body(server: Server, store: CloudObjectStore) -> None:
    async def refuse_and_listen_no_more(head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.replies("503 Slow Down", reads_body=False)(head, reader, writer)
        await server.stopping.wait()

    server.answers = [refuse_and_listen_no_more]
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(Unavailable):
            await store.put("wal/one", [memoryview(bytearray(32_000_000))])


async def test_a_listing_out_of_key_order_is_refused(server: Server, store: CloudObjectStore) -> None:
    entries = b"".join(
        b"<Contents><Key>prefix/%s</Key><LastModified>2026-07-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
        % key
        for key in (b"b", b"a")
    )
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % entries
    server.answers = [server.replies("200 OK", body)]

    with pytest.raises(Unsupported):
        _ = [found async for found in store.list("")]


async def test_wrong_credentials_are_denied_and_never_shown(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if s3_server.kind == "moto":
        pytest.skip("moto checks no signatures")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "bearlake")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_s3(s3_bucket, None, CloudSettings(endpoint=s3_server.endpoint))
    with caplog.at_level(logging.DEBUG), pytest.raises(Denied) as caught:
        await store.put("wal/one", [b"content"])

    assert "not-the-secret" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"


async def test_other_clouds_also_put_conditionally(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    server.answers = [
        server.replies("201 Created", more='ETag: "x"\r\nLast-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\n')
    ]
    settings = CloudSettings(endpoint=server.endpoint)
    await open_azure("container", "prefix", settings).put("wal/one", [b"content"])
    google = GCSStore(
        "bucket",
        base_url=server.endpoint,
        credential_provider=lambda: {"token": "token", "expires_at": None},
        client_options={"allow_http": True},
    )
    await CloudObjectStore(google, settings).put("wal/one", [b"content"])

    assert "if-none-match: *" in server.heads[0]
    assert "x-goog-if-generation-match: 0" in server.heads[1]

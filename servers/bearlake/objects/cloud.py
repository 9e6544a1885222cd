"""Objects in S3, Google Cloud Storage or Azure Blob Storage, through obstore (Rust's object_store).

- Credentials come from the environment or the platform (variables, web identity, container or instance role), or from a file
  (`cloud_credentials.py`); they are never in settings or logs.
- A put is one conditional request (`If-None-Match: *` or equivalent), so nothing is replaced. obstore's own retries are off; retries are
  in `retrying.py`.
- The body is not signed (SHA-256 would limit a core to 194 MB/s; unsigned it is 3.1 GB/s): TLS protects it, and our formats carry CRC32C.
  Plain HTTP is only used if the configured endpoint begins with `http://`.
- Stores must list in key order. S3 directory buckets do not, and are refused once a listing shows this.

Large parts are passed on without a copy. So a put that fails without a response from the store waits until the HTTP client has
released the buffers (about 1 ms after an attempt is given up); see `cloud_bodies.py`.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, S3Store
from typing_extensions import override

from bearlake.errors import AlreadyExists, NotFound, Unavailable, Unsupported
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore, cloud_credentials
from bearlake.objects.cloud_bodies import lend
from bearlake.objects.cloud_errors import has_answer, is_beyond_end, is_final_conflict, translate
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.keys import check_key, check_prefix
from bearlake.objects.ranges import Span, check_within, coalesce, scatter

if TYPE_CHECKING:
    from obstore import ListStream, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

_LIST_PAGE_COUNT = 1000  # the most that one S3 request returns
_DELETE_COUNT_MAX = 1000  # the most that one S3 request accepts
_BUFFERS_WAIT_S = 0.05  # the attempt is decided, so a late read of the buffers by the client is harmless
_GRACE_MS = 1000  # the HTTP client's own deadline comes first; ours also covers lookups of credentials
_NO_RETRIES: "RetryConfig" = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}


class CloudObjectStore(ObjectStore):
    """An `ObjectStore` over an obstore store; `open_s3` and its siblings make one. Bound to no event loop."""

    def __init__(self, store: S3Store | GCSStore | AzureStore, settings: CloudSettings) -> None:
        self._store = store
        self._settings = settings

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """A missing bucket raises `Unavailable`; missing permissions raise `Denied`."""
        check_key(key)
        body = lend(parts)
        is_decided = False
        try:
            async with self._deadline(key):
                await obstore.put_async(self._store, key, body.content, mode="create", use_multipart=False)
            is_decided = True
        except AlreadyExistsError as error:
            is_decided = True
            await self._confirm(key, error)
            raise AlreadyExists(f"object {key} exists") from error
        except (BaseError, OSError) as error:
            is_decided = has_answer(error)
            raise translate(error, key, absent_is_unavailable=True) from error
        finally:
            await body.returned(wait_s=_BUFFERS_WAIT_S if is_decided else math.inf)

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """Makes one copy, because obstore's memory is read-only (60 µs per MiB)."""
        check_key(key)
        if not ranges:
            return []
        spans = coalesce(ranges, self._settings.coalesce_gap_bytes)
        if len(spans) == 1:
            return scatter(ranges, spans, [await self._read_span(key, ranges, spans[0])])
        places = asyncio.Semaphore(self._settings.read_concurrent_count)

        async def read(span: Span) -> memoryview:
            async with places:
                return await self._read_span(key, ranges, span)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(read(span)) for span in spans]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__
        return scatter(ranges, spans, [task.result() for task in tasks])

    @override
    async def size(self, key: str) -> int:
        check_key(key)
        with _translated(key):
            async with self._deadline(key):
                return (await obstore.head_async(self._store, key))["size"]

    @override
    async def delete(self, keys: Collection[str]) -> None:
        """Deletes up to 1000 keys per request if the store supports it."""
        for key in keys:
            check_key(key)
        ordered_keys = list(keys)
        for at in range(0, len(ordered_keys), _DELETE_COUNT_MAX):
            await self._delete(ordered_keys[at : at + _DELETE_COUNT_MAX])

    @override
    async def close(self) -> None:
        """Does nothing: obstore closes idle connections by itself."""

    async def _delete(self, keys: list[str]) -> None:
        with _translated("deletion"):
            async with self._deadline("deletion"):
                try:
                    await obstore.delete_async(self._store, keys)
                except (FileNotFoundError, NotFoundError):  # some stores report absent keys as errors
                    for key in keys:
                        with suppress(FileNotFoundError, NotFoundError):
                            await obstore.delete_async(self._store, key)

    async def _confirm(self, key: str, conflict: AlreadyExistsError) -> None:
        """Return if the object certainly exists; else raise `Unavailable`.

        S3 answers 409 if another request for the key was in progress, and then possibly neither was stored; obstore reports it like 412.
        Source: Amazon S3 API, PutObject, ConditionalRequestConflict.
        """
        if is_final_conflict(conflict):
            return
        try:
            await self.size(key)
        except NotFound as error:
            raise Unavailable(f"object {key}: a concurrent put of the key is in progress") from error

    async def _read_span(self, key: str, ranges: Sequence[ByteRange], span: Span) -> memoryview:
        span_ranges = [ranges[position] for position in span.positions]
        if span.start == span.end:  # HTTP cannot request an empty range
            check_within(key, span_ranges, await self.size(key))
            return memoryview(bytearray())
        try:
            async with self._deadline(key):
                answer = await obstore.get_async(self._store, key, options={"range": (span.start, span.end)})
                check_within(key, span_ranges, answer.meta["size"])
                content = await answer.bytes_async()
        except (BaseError, OSError) as error:
            if is_beyond_end(error):
                check_within(key, span_ranges, await self.size(key))
            raise translate(error, key) from error
        if len(content) != span.end - span.start:
            raise Unavailable(f"object {key}: received {len(content)} of {span.end - span.start} bytes")
        return memoryview(bytearray(content))

    @asynccontextmanager
    async def _deadline(self, what: str) -> AsyncIterator[None]:
        deadline_ms = self._settings.request_deadline_ms + _GRACE_MS
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                yield
        except TimeoutError as error:
            raise Unavailable(f"{what}: no answer from the object store within {deadline_ms} ms") from error

    async def _next_page(self, pages: "ListStream[Sequence[ObjectMeta]]", what: str) -> Sequence["ObjectMeta"]:
        """Return the next page of a listing; empty at the end."""
        with _translated(what):
            async with self._deadline(what):
                try:
                    return await anext(pages)
                except StopAsyncIteration:
                    return ()

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects put or deleted during the listing may or may not appear."""
        check_prefix(prefix)
        check_prefix(after)
        # The store's prefixes are whole path parts, and its offset drops a trailing slash: the rest is filtered here.
        folder = prefix[: prefix.rfind("/") + 1].rstrip("/")
        offset = after.rstrip("/")
        pages = obstore.list(self._store, prefix=folder or None, offset=offset or None, chunk_size=_LIST_PAGE_COUNT)
        previous = ""
        while page := await self._next_page(pages, prefix):
            for entry in page:
                key = entry["path"]
                if key < previous:
                    raise Unsupported(f"the object store listed {key} after {previous}; expected key order")
                previous = key
                if not key.startswith(prefix):
                    if key > prefix:
                        return
                elif key > after:
                    modified_ms = round(entry["last_modified"].timestamp() * 1000)
                    yield ObjectInfo(key=key, size=entry["size"], modified_ms=modified_ms)


def open_s3(bucket: str, prefix: str | None, settings: CloudSettings) -> CloudObjectStore:
    """Open an S3 bucket. What the settings leave open, including keys, comes from `AWS_…` variables or the platform. Raises `Invalid`."""
    provider = None if settings.credentials_file is None else cloud_credentials.follow(settings.credentials_file)
    store = S3Store(
        bucket,
        prefix=prefix,
        unsigned_payload=not settings.sign_payload,
        client_options=_client_options(settings),
        retry_config=_NO_RETRIES,
        **_given(endpoint=settings.endpoint, region=settings.region, credential_provider=provider),
    )
    return CloudObjectStore(store, settings)


def open_gcs(bucket: str, prefix: str | None, settings: CloudSettings) -> CloudObjectStore:
    """Open a Google Cloud Storage bucket. Credentials come from `GOOGLE_…` variables or the platform."""
    options = _client_options(settings)
    store = GCSStore(
        bucket,
        prefix=prefix,
        client_options=options,
        retry_config=_NO_RETRIES,
        **_given(base_url=settings.endpoint),
    )
    return CloudObjectStore(store, settings)


def open_azure(container: str, prefix: str | None, settings: CloudSettings) -> CloudObjectStore:
    """Open an Azure Blob container. Account and credentials come from `AZURE_…` variables or the platform."""
    store = AzureStore(
        container,
        prefix=prefix,
        client_options=_client_options(settings),
        retry_config=_NO_RETRIES,
        **_given(endpoint=settings.endpoint),
    )
    return CloudObjectStore(store, settings)


def _client_options(settings: CloudSettings) -> "ClientConfig":
    endpoint = settings.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return {
        "allow_http": endpoint.startswith("http://"),
        "timeout": timedelta(milliseconds=settings.request_deadline_ms),
        "connect_timeout": timedelta(milliseconds=settings.connect_deadline_ms),
    }


# Any: the keyword arguments of obstore's constructors are typed per store.
def _given(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise translate(error, what) from error

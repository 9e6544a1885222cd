"""Open the object store that a URL names: `open_store`.

| URL | store |
|---|---|
| `file:///folder` | local folder, created if absent |
| `s3://bucket/prefix` | Amazon S3, or the S3-compatible server at `cloud.endpoint` |
| `gs://bucket/prefix` | Google Cloud Storage |
| `az://container/prefix` | Azure Blob Storage, account from the environment |
| `memory:///` | this process's memory, empty at first, lost at the end |
"""

import logging
import random
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from bearlake.clock import Clock
from bearlake.errors import Invalid
from bearlake.objects import ObjectStore
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.fault_settings import InjectedFaults
from bearlake.objects.keys import check_key
from bearlake.objects.local import LocalObjectStore, LocalSettings
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.objects.metered import MeteredObjectStore, Recorder
from bearlake.objects.retrying import RetryingObjectStore, RetrySettings

log = logging.getLogger(__name__)

_SCHEMES = "file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or memory:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreSettings:
    """Settings of the object store; the URL decides which of them apply."""

    local: LocalSettings = field(default_factory=LocalSettings)
    """For `file://`."""

    cloud: CloudSettings = field(default_factory=CloudSettings)
    """For `s3://`, `gs://` and `az://`."""

    retry: RetrySettings = field(default_factory=RetrySettings)
    """For all of them."""

    faults: InjectedFaults = field(default_factory=InjectedFaults)
    """For benchmarks and tests of faults, off by default."""


def open_store(
    url: str,
    settings: ObjectStoreSettings | None = None,
    *,
    randomness: random.Random | None = None,
    recorder: Recorder | None = None,
    clock: Clock | None = None,
) -> ObjectStore:
    """Open the store at `url`, with retries; with a `recorder`, every attempt is metered. `randomness` spreads retries and draws faults.

    Creates the folder of `file://`, but opens no connections: a missing bucket shows at the first call.

    Raises:
        Invalid: the URL names no known store, or has parts without a meaning.
        Denied, Unavailable: the folder cannot be created.
    """
    settings = settings or ObjectStoreSettings()
    randomness = randomness or random.Random()  # noqa: S311 (jitter)
    store = _open(url, settings, clock)
    if not settings.faults.is_off:
        from bearlake.objects.faulty import faulty  # late: for benchmarks and tests

        log.warning("injecting faults into the object store, as configured", extra={"faults": settings.faults})
        store = faulty(store, settings.faults, randomness)
    if recorder is not None:
        store = MeteredObjectStore(store, recorder)
    return MarkerObjectStore(RetryingObjectStore(store, settings.retry, randomness))


def _open(url: str, settings: ObjectStoreSettings, clock: Clock | None) -> ObjectStore:
    parts = _split(url)
    if parts.scheme == "memory":
        if parts.netloc or parts.path not in ("", "/"):
            raise Invalid(f"object store URL {url!r}: expected memory:///")
        return MemoryObjectStore(clock)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not path.is_absolute() or path == Path("/"):
            raise Invalid(f"object store URL {url!r}: expected file:///folder with an absolute path, not the root")
        return LocalObjectStore(path, settings.local, clock=clock)
    if parts.scheme in ("s3", "gs", "az"):
        return _open_cloud(url, parts, settings.cloud)
    raise Invalid(f"object store URL {url!r}: expected {_SCHEMES}")


def _open_cloud(url: str, parts: SplitResult, settings: CloudSettings) -> ObjectStore:
    from bearlake.objects import cloud  # late: a local store needs no HTTP client

    bucket, prefix = parts.netloc, parts.path.strip("/")
    if not bucket or "@" in bucket or ":" in bucket:
        raise Invalid(
            f"object store URL {parts.scheme}://…: expected a bucket or container name, without credentials or port"
        )
    if prefix:
        try:
            check_key(prefix)
        except Invalid as error:
            raise Invalid(f"object store URL {url!r}: its prefix is not a valid object key") from error
    opener = {"s3": cloud.open_s3, "gs": cloud.open_gcs, "az": cloud.open_azure}[parts.scheme]
    return opener(bucket, prefix or None, settings)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"object store URL: {error}; expected {_SCHEMES}") from error
    if parts.query or parts.fragment:
        raise Invalid(
            "object store URL: expected nothing after the path; endpoint, region and credentials come from settings or the environment"
        )
    return parts

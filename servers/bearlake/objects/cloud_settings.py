"""Settings of the cloud stores, in a file of their own, so that a local store does not load obstore (6 MiB)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Settings of the cloud stores."""

    endpoint: str | None = None
    """URL of an S3-compatible server; null: `AWS_ENDPOINT_URL`, else Amazon. `http://` is accepted and unencrypted."""

    region: str | None = None
    """Region of the bucket; null: `AWS_REGION`. Many S3-compatible servers accept any region."""

    credentials_file: str | None = None
    """S3: file with keys in the format of `~/.aws/credentials`, read again every minute, so that the keys can be rotated. Null: the `AWS_…`
    variables or the platform, which renews its own credentials."""

    request_deadline_ms: int = 20_000
    """Longest time of one request with its body before it fails as `Unavailable`. Long enough for the largest object at low throughput."""

    connect_deadline_ms: int = 3_000
    """Longest time to connect. Short, because a lost packet costs the most here."""

    coalesce_gap_bytes: int = 256 * 1024
    """One request reads ranges that are at most this far apart: reading the gap costs less money and time than a round trip (30 ms at 100
    MB/s is 3 MB)."""

    read_concurrent_count: int = 8
    """Concurrent requests of one `read` of distant ranges."""

    sign_payload: bool = False
    """Sign the SHA-256 of each body, for servers that refuse unsigned bodies. Limits a core to about 190 MB/s."""

"""Settings of the cloud stores, apart from their user, so that a local store does not load obstore (6 MiB)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Settings of the cloud stores."""

    endpoint: str | None = None
    """URL of an S3-compatible server; None asks `AWS_ENDPOINT_URL`, else Amazon. `http://` is accepted and unencrypted."""

    region: str | None = None
    """Region of the bucket; None asks `AWS_REGION`. Many S3-compatible servers accept any."""

    credentials_file: str | None = None
    """S3: file with keys in the format of `~/.aws/credentials`, read anew every minute, so that they can be rotated. None asks `AWS_…`
    variables or the platform, which renews its own."""

    request_deadline_ms: int = 20_000
    """One request with its body, over which it raises `Unavailable`. Long enough for the largest object on a slow day."""

    connect_deadline_ms: int = 3_000
    """Making a connection. Short, since a lost packet here costs the most."""

    coalesce_gap_bytes: int = 256 * 1024
    """Ranges at most this far apart share a request: reading the gap costs less than a round trip (30 ms at 100 MB/s is 3 MB) and money."""

    read_concurrent_count: int = 8
    """Requests that one `read` of distant ranges has under way."""

    sign_payload: bool = False
    """Sign the SHA-256 of each body, for servers that refuse unsigned ones. Caps a core at about 190 MB/s."""

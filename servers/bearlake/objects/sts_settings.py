"""Settings of the temporary keys that clients get (`sts.py`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """The role whose keys clients get."""

    role_arn: str | None = None
    """Role that the server assumes for a client, such as `arn:aws:iam::123456789012:role/tables`; null: no client gets keys. Its policy
    must allow all that any client may do."""
    external_id: str | None = None
    """The external id that the role's trust policy asks for; null: none."""
    duration_s: int = 3_600
    """Lifetime (s) of keys, 900 to 43,200 as STS allows. They cannot be revoked one by one, so longer ones outlive a right that was taken
    away. A query that runs longer fails."""
    sts_endpoint: str | None = None
    """URL of STS; null: Amazon's in the region, or `AWS_ENDPOINT_URL_STS`."""
    client_endpoint: str | None = None
    """URL of the object store for clients; null: `object_store.cloud.endpoint`, else Amazon."""
    deadline_ms: int = 10_000
    """Longest time (ms) of a request for keys; then the client's request is answered with 503."""
    concurrent_count: int = 4
    """Requests to STS at once; others wait."""
    cached_count_max: int = 10_000
    """Keys that a server remembers, one for each client and table, and gives out again for the first half of their lifetime."""

    def __post_init__(self) -> None:
        if not 900 <= self.duration_s <= 43_200:
            raise ValueError("duration_s must be between 900 and 43,200")

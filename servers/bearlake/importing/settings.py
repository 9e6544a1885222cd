"""The settings of imports: how the source is reached and read, and how fast."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bearlake.importing.pulsar_settings import PulsarSourceSettings

GAP_OFFSETS_MAX = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The cluster that `bearlake import` reads: TLS, login, and bounds of requests."""

    PEER: ClassVar[str] = "the source"
    """What messages call the cluster."""
    SECTION: ClassVar[str] = "imports.source"
    """Where these settings are, for messages."""
    CLIENT_ID: ClassVar[str] = "bearlake-import"
    """How our requests name their sender."""
    mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    """How to log in at the source (SASL). Empty: without a login, or by the certificate of `tls_certificate_file`."""
    user: str = ""
    """User of PLAIN and SCRAM. It needs the rights Read, Describe and DescribeConfigs on the topics, Describe on the groups and, to copy
    rules and users, Describe on the cluster."""
    password_file: str = ""
    """File with the user's password. It is read at each login, so a changed file holds from the next connection on."""
    token_file: str = ""
    """File with the token of OAUTHBEARER, read at each login."""
    plain_without_tls: bool = False
    """Also send passwords and tokens to other machines without TLS (PLAIN, OAUTHBEARER). Anyone on the network path can read them."""
    tls: bool = False
    """Connect with TLS."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the brokers' certificates; empty: the authorities that this machine trusts."""
    tls_server_name: str = ""
    """Name that the certificates of all brokers have; empty: each certificate must have the host by which its broker is reached."""
    tls_certificate_file: str = ""
    """PEM file with a certificate that shows the brokers who reads; empty: none."""
    tls_key_file: str = ""
    """PEM file with the key of `tls_certificate_file`."""
    timeout_ms: int = 30_000
    """Longest wait for a connection, or for one response beyond the wait that the request allows; also for all coordinators of groups that
    are away for a moment, unless the copy follows and tries again later."""
    fetch_bytes_max: int = 16 * 1024 * 1024
    """Bytes of one Fetch response, except for a single larger batch. An import holds twice as much per lane."""
    partition_bytes_max: int = 4 * 1024 * 1024
    """Bytes of one partition in a Fetch response, so that a long partition does not keep the others waiting."""
    fetch_wait_ms: int = 500
    """Longest time for which the source waits for records when there are none."""
    response_bytes_max: int = 512 * 1024 * 1024
    """Largest response that is read."""
    gap_offsets_max: int = field(default=GAP_OFFSETS_MAX, metadata={"min": 0})
    """Most offsets in a row that have no records, as key compaction and deletion leave them. A topic with a longer gap is not copied."""

    def __post_init__(self) -> None:
        needed = {
            "": (),
            "OAUTHBEARER": ("token_file",),
        }.get(self.mechanism, ("user", "password_file"))
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"mechanism {self.mechanism} needs {name}")
        if self.user and not self.mechanism:
            raise ValueError("user needs a mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("tls_certificate_file and tls_key_file need each other")
        if not self.tls and (self.tls_ca_file or self.tls_server_name or self.tls_certificate_file):
            raise ValueError("tls_ca_file, tls_server_name and tls_certificate_file need tls: true")
        if self.partition_bytes_max > self.fetch_bytes_max:
            raise ValueError("partition_bytes_max must not be larger than fetch_bytes_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How fast an import copies, and how it behaves if something does not answer."""

    lane_count: int = field(default=2, metadata={"min": 1})
    """Connections to each broker. Each holds up to two responses in memory."""
    bytes_per_s: int = 0
    """Most bytes per second that are read from the source; 0: no limit."""
    attempt_count_max: int = 10
    """Failures in a row without a copied batch, after which the import ends. An import that follows tries on without end."""
    pause_ms: int = 1_000
    """Pause after such a failure."""
    refresh_ms: int = 60_000
    """Time after which an import that follows asks for new partitions and new leaders, and copies offsets of groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySourceSettings:
    """The schema registry that `bearlake import` reads."""

    user: str = ""
    """User (Basic); empty: without a login."""
    password_file: str = ""
    """File with the user's password. It is read for each request."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the registry's certificate; empty: the authorities that this machine trusts."""
    timeout_ms: int = 30_000
    """Longest wait for one response."""
    response_bytes_max: int = 16 * 1024 * 1024
    """Largest response that is read."""

    def __post_init__(self) -> None:
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file need each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """Imports of other clusters (`bearlake import`)."""

    source: SourceSettings = field(default_factory=SourceSettings)
    copy: CopySettings = field(default_factory=CopySettings)
    registry: RegistrySourceSettings = field(default_factory=RegistrySourceSettings)
    pulsar: PulsarSourceSettings = field(default_factory=PulsarSourceSettings)

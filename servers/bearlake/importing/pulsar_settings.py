"""The settings of imports from Pulsar: how the source is reached and read."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSourceSettings:
    """The Pulsar cluster that `bearlake import pulsar` reads: TLS, login, and bounds of requests. They hold for both of its protocols."""

    token_file: str = ""
    """File with the token by which the import logs in, read at each login; empty: no login, or that of `tls_certificate_file`. Its role
    needs to consume the topics, and to manage their subscriptions."""
    token_without_tls: bool = False
    """Also send the token to other machines without TLS. Anyone on the network path can read it."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the brokers' certificates; empty: the authorities that this machine trusts."""
    tls_server_name: str = ""
    """Name that the certificates of all brokers have; empty: each certificate must have the host by which its broker is reached."""
    tls_certificate_file: str = ""
    """PEM file with a certificate that shows the brokers who reads; empty: none."""
    tls_key_file: str = ""
    """PEM file with the key of `tls_certificate_file`."""
    timeout_ms: int = field(default=30_000, metadata={"min": 1})
    """Longest wait for a connection or an answer."""
    fetch_bytes_max: int = field(default=16 * 1024 * 1024, metadata={"min": 1})
    """Bytes of entries that a connection reads ahead, except for a single larger entry. An import holds three times as much per lane."""
    wait_ms: int = field(default=500, metadata={"min": 1})
    """Longest time for which a connection waits for entries before it looks at its partitions again."""
    frame_bytes_max: int = field(default=128 * 1024 * 1024, metadata={"min": 1})
    """Largest frame that is read."""
    answer_bytes_max: int = field(default=256 * 1024 * 1024, metadata={"min": 1})
    """Largest answer of the HTTP API: the positions of a subscription with many holes are long."""
    entry_uncompressed_bytes_max: int = field(default=64 * 1024 * 1024, metadata={"min": 1})
    """Largest entry, uncompressed, whose messages become records. Larger ones are kept as they are, one record each, for Pulsar clients."""
    subscription: str = "bearlake-import"
    """Beginning of the name of the subscription that keeps what is not copied yet at the source, and shows that a topic is still the
    same one. The id of the stream follows. Empty: no subscription; then retention of the source may be faster than the import."""

    def __post_init__(self) -> None:
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("tls_certificate_file and tls_key_file need each other")

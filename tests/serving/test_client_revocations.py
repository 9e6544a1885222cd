"""Client certificates that are revoked, or whose authority is no longer trusted: refused by every listener, without a restart."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bearlake.errors import Denied, Invalid
from bearlake.serving.authentication.revocations import RevocationLists
from bearlake.serving.certificates import SESSION_MS_MAX, Certificates
from bearlake.serving.listener import ListenerSettings, RenewableContext, tls_context

DAY = timedelta(days=1)
ONLY_AUTHORITIES = x509.IssuingDistributionPoint(None, None, False, True, None, False, False)
"""Limits a list to the certificates of authorities."""


@dataclass
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


@dataclass
class Authority:
    """An authority that issues and revokes certificates."""

    name: str
    start: datetime = field(default_factory=lambda: datetime.now(UTC) - DAY)
    above: "Authority | None" = None
    """The authority that issued this one's certificate; None: a root."""

    def __post_init__(self) -> None:
        issuer = None if self.above is None else self.above.root
        self.root = self._issue(self.name, issuer, is_authority=True)

    def issue(self, name: str) -> Issued:
        return self._issue(name, self.root)

    def revoke(self, *revoked: Issued, days: int = 9, scope: x509.ExtensionType | None = None) -> bytes:
        """Return a list (PEM) of these certificates that ends after so many days; `scope`: an extension that limits what it lists."""
        made = x509.CertificateRevocationListBuilder(self.root.certificate.subject, self.start, self.start + days * DAY)
        for found in revoked:
            number = found.certificate.serial_number
            entry = x509.RevokedCertificateBuilder(number, self.start)
            made = made.add_revoked_certificate(entry.build())
        if scope is not None:
            made = made.add_extension(scope, critical=True)
        return made.sign(self.root.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _issue(self, name: str, issuer: Issued | None, *, is_authority: bool = False) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.start)
            .not_valid_after(self.start + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        return Issued(built.sign(key if issuer is None else issuer.key, hashes.SHA256()), key)


@dataclass
class Listening:
    """A listener's files and its context."""

    folder: Path
    authority: Authority = field(default_factory=lambda: Authority("authority"))

    def __post_init__(self) -> None:
        server = self.authority.issue("localhost")
        self.put("server.pem", server.pem)
        key = server.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.put("server.key", key)
        self.put("clients.pem", self.authority.root.pem)
        self.put("crl.pem", self.authority.revoke())

    def put(self, name: str, content: bytes) -> None:
        """Replace a file, as renewal does."""
        (self.folder / "new").write_bytes(content)
        (self.folder / "new").rename(self.folder / name)

    def lists(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> RevocationLists:
        return RevocationLists(str(self.folder / "crl.pem"), str(self.folder / "clients.pem"), now)

    @property
    def settings(self) -> ListenerSettings:
        return ListenerSettings(
            tls_certificate_file=str(self.folder / "server.pem"),
            tls_key_file=str(self.folder / "server.key"),
            tls_client_ca_file=str(self.folder / "clients.pem"),
            tls_client_crl_file=str(self.folder / "crl.pem"),
        )

    def listen(self) -> tuple[RenewableContext, Certificates]:
        made = tls_context(self.settings, "kafka")
        assert made is not None
        context, certificates = RenewableContext(made), Certificates()
        certificates.watch(self.settings, "kafka", context)
        return context, certificates

    def client(self, client: Issued) -> ssl.SSLContext:
        """The client's side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        own = self.folder / "client.pem"
        own.write_bytes(client.pem + client.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        context.load_cert_chain(own)
        return context

    def is_let_in(self, server: ssl.SSLContext, client: Issued) -> bool:
        """Whether the client gets through a handshake."""
        try:
            shake_hands(self.client(client), server)
        except ssl.SSLError:
            return False
        return True


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> list[ssl.SSLObject]:
    """Return client and server after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, session=session),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    left = list(sides)
    while left:
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    return sides


@pytest.fixture
def listening(tmp_path: Path) -> Listening:
    return Listening(tmp_path)


def test_a_revoked_certificate_is_refused_without_a_restart(listening: Listening) -> None:
    alice, bob = listening.authority.issue("alice"), listening.authority.issue("bob")
    context, certificates = listening.listen()
    assert listening.is_let_in(context, alice)
    listening.put("crl.pem", listening.authority.revoke(alice))
    certificates.renew()
    assert not listening.is_let_in(context, alice)
    assert listening.is_let_in(context, bob)


def test_a_removed_authority_is_no_longer_trusted(listening: Listening) -> None:
    alice, other = listening.authority.issue("alice"), Authority("other")
    context, certificates = listening.listen()
    assert listening.is_let_in(context, alice)
    listening.put("clients.pem", other.root.pem)
    listening.put("crl.pem", other.revoke())
    certificates.renew()
    assert not listening.is_let_in(context, alice)
    assert listening.is_let_in(context, other.issue("carol"))


def test_a_damaged_list_leaves_the_former_one_in_use(listening: Listening) -> None:
    alice = listening.authority.issue("alice")
    listening.put("crl.pem", listening.authority.revoke(alice))
    context, certificates = listening.listen()
    listening.put("crl.pem", b"nonsense")
    certificates.renew()
    assert not listening.is_let_in(context, alice)
    assert listening.is_let_in(context, listening.authority.issue("bob"))


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(Denied, match=words):
        yield


def test_revocation_lists_of_grpc_refuse_the_same_certificates(listening: Listening) -> None:
    alice, bob = listening.authority.issue("alice"), listening.authority.issue("bob")
    now = [datetime.now(UTC)]
    listening.put("crl.pem", listening.authority.revoke(alice))
    lists = listening.lists(lambda: now[0])
    lists.check(bob.pem)
    with refused("revoked"):
        lists.check(alice.pem)
    with refused("no valid revocation list"):
        lists.check(Authority("other").issue("carol").pem)
    with refused("no valid revocation list"):  # a certificate that only claims to be from the authority
        lists.check(Authority("authority").issue("mallory").pem)
    with refused("parsed"):
        lists.check(b"")
    now[0] += 9 * DAY
    with refused("no valid revocation list"):
        lists.check(bob.pem)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense", "no revocation list in PEM"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "cannot use"),
        (Authority("other").revoke(), "not among the client authorities"),
        (Authority("authority").revoke(), "not among the client authorities"),  # signed by another key
        (Authority("authority").revoke(scope=ONLY_AUTHORITIES), "expected a complete list"),
        (Authority("authority").revoke(scope=x509.DeltaCRLIndicator(1)), "expected a complete list"),
    ],
    ids=["no list", "damaged", "of another authority", "false signature", "of authorities", "of changes"],
)
def test_lists_that_cannot_be_used_are_named_at_start(listening: Listening, content: bytes, words: str) -> None:
    listening.put("crl.pem", content)
    with pytest.raises(Invalid, match=words):
        listening.lists()


def test_the_list_of_a_removed_authority_keeps_no_other_list_from_renewal(listening: Listening) -> None:
    alice, bob, other = listening.authority.issue("alice"), listening.authority.issue("bob"), Authority("other")
    carol = other.issue("carol")
    listening.put("clients.pem", listening.authority.root.pem + other.root.pem)
    listening.put("crl.pem", listening.authority.revoke() + other.revoke())
    now_s = [0.0]
    lists = RevocationLists(
        str(listening.folder / "crl.pem"), str(listening.folder / "clients.pem"), now_s=lambda: now_s[0]
    )
    for client in (alice, bob, carol):
        lists.check(client.pem)
    listening.put("clients.pem", listening.authority.root.pem)
    listening.put("crl.pem", listening.authority.revoke(alice) + other.revoke())
    now_s[0] += 10
    lists.check(bob.pem)
    with refused("revoked"):
        lists.check(alice.pem)
    with refused("no valid revocation list"):
        lists.check(carol.pem)


def test_files_that_change_before_they_are_watched_are_used(listening: Listening) -> None:
    alice = listening.authority.issue("alice")
    made = tls_context(listening.settings, "kafka")
    assert made is not None
    context, certificates = RenewableContext(made), Certificates()
    listening.put("crl.pem", listening.authority.revoke(alice))
    certificates.watch(listening.settings, "kafka", context)
    assert not listening.is_let_in(context, alice)


def test_a_client_that_resumes_a_session_is_verified_again_after_a_while(listening: Listening) -> None:
    """TLS 1.2 resumes sessions without tickets."""
    made = tls_context(listening.settings, "kafka")
    assert made is not None
    now_s = [0.0]
    context, certificates = RenewableContext(made), Certificates(lambda: now_s[0])
    certificates.watch(listening.settings, "kafka", context)
    client = listening.client(listening.authority.issue("alice"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    first, server = shake_hands(client, context)  # a server forgets the session if its side ends without a close
    resumed, _ = shake_hands(client, context, first.session)
    now_s[0] += SESSION_MS_MAX / 1000
    certificates.renew()
    late, _ = shake_hands(client, context, first.session)

    assert server.getpeercert() is not None
    assert [resumed.session_reused, late.session_reused] == [True, False]


def test_clients_of_a_revoked_intermediate_authority_are_refused(listening: Listening) -> None:
    root, intermediate = listening.authority, Authority("intermediate", above=listening.authority)
    alice = intermediate.issue("alice")
    listening.put("clients.pem", root.root.pem + intermediate.root.pem)
    listening.put("crl.pem", root.revoke() + intermediate.revoke())
    context, _ = listening.listen()
    assert listening.is_let_in(context, alice)
    listening.lists().check(alice.pem)

    listening.put("crl.pem", root.revoke(intermediate.root) + intermediate.revoke())
    context, _ = listening.listen()
    assert not listening.is_let_in(context, alice)
    with refused("revoked"):
        listening.lists().check(alice.pem)


def test_each_authority_of_a_chain_needs_a_list(listening: Listening) -> None:
    intermediate = Authority("intermediate", above=listening.authority)
    alice = intermediate.issue("alice")
    listening.put("clients.pem", listening.authority.root.pem + intermediate.root.pem)
    listening.put("crl.pem", intermediate.revoke())
    context, _ = listening.listen()
    assert not listening.is_let_in(context, alice)
    with refused("no valid revocation list"):
        listening.lists().check(alice.pem)


def test_a_list_needs_authorities() -> None:
    with pytest.raises(ValueError, match="tls_client_ca_file"):
        ListenerSettings(tls_client_crl_file="crl.pem")

"""Revoked client certificates, for libraries that verify certificates but take no revocation lists (gRPC).

The rules are OpenSSL's (`VERIFY_CRL_CHECK_CHAIN`), which other listeners use: a client is refused if a list names its certificate or an
authority above it, and also if one of these authorities has no list that is valid now.

Source: RFC 5280 section 5.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from bearlake.errors import Denied, Invalid
from bearlake.serving.files import FollowedFiles

log = logging.getLogger(__name__)

_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_CHAIN_COUNT_MAX = 1_000
"""Most certificates whose chains are cached."""
_CHAIN_LENGTH_MAX = 10
"""Most certificates between a client and a root, with both."""


class _List(NamedTuple):
    """What a revocation list says. Its own look-up would read the whole list with every call."""

    issuer: x509.Name
    start: datetime
    end: datetime | None
    numbers: frozenset[int]
    """The serial numbers of the revoked certificates."""

    def is_valid(self, now: datetime) -> bool:
        return self.start <= now and (self.end is None or now < self.end)


_Lists = Sequence[tuple[_List, x509.Certificate]]
_Chain = Sequence[tuple[int, Sequence[_List]]]
"""The serial number of each certificate, from the client's to the root's, and the lists of its authority, valid now or not."""


def _now() -> datetime:
    return datetime.now(UTC)


class RevocationLists:
    """The lists of one listener. They are read again after their file, or that of the authorities, has changed."""

    def __init__(
        self,
        lists_file: str,
        authorities_file: str,
        now: Callable[[], datetime] = _now,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Both files are PEM. Raises `Invalid` if they cannot be used."""
        self._files = lists_file, authorities_file
        self._now = now
        self._followed = FollowedFiles(self._files, now_s=now_s)
        self._lists = _read(*self._files)
        self._chains: dict[bytes, _Chain] = {}

    def check(self, certificate: bytes) -> None:
        """Raise `Denied` unless the certificate (PEM), which an authority has issued, may be used."""
        if self._followed.have_changed():
            self._renew()
        now = self._now()
        for number, lists in self._chain(certificate):
            valid = [found for found in lists if found.is_valid(now)]
            if not valid:
                raise Denied("there is no valid revocation list of an authority of the client's certificate")
            if any(number in found.numbers for found in valid):
                raise Denied("the client's certificate, or that of an authority above it, is revoked")

    def _renew(self) -> None:
        try:
            self._lists = _read(*self._files, skips_unknown=True)
        except Invalid as error:
            log.warning("cannot use the changed revocation lists; keeping the former ones", extra={"error": str(error)})
        self._chains.clear()

    def _chain(self, certificate: bytes) -> _Chain:
        """Return the chain up to a root, or to a certificate whose authority has no list. Signatures are verified once."""
        chain = self._chains.get(certificate)
        if chain is None:
            try:
                parsed = x509.load_pem_x509_certificate(certificate)
            except ValueError as error:
                raise Denied(f"the client's certificate cannot be parsed: {error}") from error
            if len(self._chains) >= _CHAIN_COUNT_MAX:
                self._chains.clear()
            chain = self._chains[certificate] = _chain_of(parsed, self._lists)
        return chain


def _chain_of(certificate: x509.Certificate, lists: _Lists) -> _Chain:
    chain: list[tuple[int, Sequence[_List]]] = []
    for _ in range(_CHAIN_LENGTH_MAX):
        own = [
            (found, authority)
            for found, authority in lists
            if found.issuer == certificate.issuer and _issued(authority, certificate)
        ]
        chain.append((certificate.serial_number, [found for found, _ in own]))
        if not own or own[0][1] == certificate:
            return chain
        certificate = own[0][1]
    raise Denied(f"the chain of the client's certificate is longer than {_CHAIN_LENGTH_MAX}")


def _read(lists_file: str, authorities_file: str, *, skips_unknown: bool = False) -> _Lists:
    """Return each list with the authority that signed it. Raises `Invalid` if a file, or none of the lists, can be used.

    `skips_unknown`: leave out lists without an authority, as OpenSSL does. Otherwise one would keep the other lists from being renewed
    after its authority was removed.
    """
    try:
        authorities = x509.load_pem_x509_certificates(Path(authorities_file).read_bytes())
        lists = [x509.load_pem_x509_crl(found) for found in _LIST.findall(Path(lists_file).read_bytes())]
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot use {lists_file} and {authorities_file}: {error}") from error
    if not lists:
        raise Invalid(f"{lists_file} has no revocation list in PEM (-----BEGIN X509 CRL-----)")
    signed: list[tuple[_List, x509.Certificate]] = []
    unknown: Invalid | None = None
    for found in lists:
        _check_scope(found, lists_file)
        try:
            signed.append((_list_of(found), _signer(found, authorities, lists_file)))
        except Invalid as error:
            unknown = error
            log.warning("a revocation list has no authority", extra={"error": str(error)})
    if unknown is not None and not (skips_unknown and signed):
        raise unknown
    return signed


def _check_scope(found: x509.CertificateRevocationList, lists_file: str) -> None:
    """Raise `Invalid` for a list of only some certificates or reasons, or of changes. Source: RFC 5280, 5.2 (critical extensions)."""
    try:
        extensions = found.extensions
    except (ValueError, x509.DuplicateExtension) as error:
        raise Invalid(f"{lists_file} has a list with an extension that cannot be read: {error}") from error
    for extension in extensions:
        if extension.critical:
            name = extension.oid.dotted_string
            raise Invalid(f"{lists_file} has a list with the critical extension {name}; expected a complete list")


def _signer(
    found: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate], lists_file: str
) -> x509.Certificate:
    for authority in authorities:
        if authority.subject == found.issuer and _signed(found, authority):
            return authority
    raise Invalid(
        f"{lists_file} has a list of {found.issuer.rfc4514_string()}, which is not among the client authorities"
    )


def _signed(found: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return found.is_signature_valid(authority.public_key())  # type: ignore[arg-type]  # keys of other kinds raise TypeError
    except (TypeError, ValueError, InvalidSignature):
        return False


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (TypeError, ValueError, InvalidSignature):
        return False
    return True


def _list_of(found: x509.CertificateRevocationList) -> _List:
    numbers = frozenset(revoked.serial_number for revoked in found)
    return _List(found.issuer, found.last_update_utc, found.next_update_utc, numbers)

"""Clients verify servers of an authority without a key usage, which Python 3.13 refuses by default, and refuse what they refused before."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from bearlake.authorities import verifying_context
from bearlake.cli.http_client import Tls
from bearlake.table.catalog import tls_context as catalog_context
from bearlake_operator.controllers.watches import Connection
from bearlake_operator.kube_config import ClientConfig
from fixtures.handshakes import shake_hands

Make = Callable[[Path], ssl.SSLContext]


def of_catalog(authority: Path) -> ssl.SSLContext:
    context = catalog_context(make_url(f"postgresql://u@h/d?sslmode=verify-full&sslrootcert={authority}"))
    assert context is not None
    return context


def of_operator(authority: Path) -> ssl.SSLContext:
    return ClientConfig(server="https://localhost", namespace="lake", ca_file=str(authority)).tls_context()


def of_watches(authority: Path) -> ssl.SSLContext:
    config = ClientConfig(server="https://localhost", namespace="lake", ca_file=str(authority))
    return Connection(config=config, server=config.server).as_ssl_context()


CONTEXTS: list[Make] = [
    verifying_context,
    lambda path: Tls(ca_file=path).context(),
    of_catalog,
    of_operator,
    of_watches,
]
NAMES = ["any client", "command", "catalog", "operator", "watches"]


@pytest.fixture(autouse=True)
def strict_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python's default context be as strict as that of Python 3.13."""
    default = ssl.create_default_context

    def strict(*args: object, **options: object) -> ssl.SSLContext:
        context = default(*args, **options)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


def test_python_refuses_an_authority_without_key_usage(plain_certificates: dict[str, Path]) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
        shake_hands(ssl.create_default_context(cafile=plain_certificates["authority"]), plain_certificates)


@pytest.mark.parametrize("make", CONTEXTS, ids=NAMES)
def test_an_authority_without_key_usage_is_accepted(make: Make, plain_certificates: dict[str, Path]) -> None:
    context = make(plain_certificates["authority"])

    shake_hands(context, plain_certificates)

    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("make", CONTEXTS, ids=NAMES)
def test_another_authority_and_another_name_are_refused(
    make: Make, plain_certificates: dict[str, Path], certificates: dict[str, Path]
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(make(certificates["authority"]), plain_certificates)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(make(plain_certificates["authority"]), plain_certificates, name="elsewhere")

"""aiohttp's TLS contexts read the authorities of the machine when they are used first, and are ordinary contexts from then on."""

import ssl
from pathlib import Path

import pytest

from bearlake.serving.http import loading
from bearlake.serving.http.loading import LateContext


@pytest.fixture
def late(certificates: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A context that was made as aiohttp makes its own while it is imported; the machine trusts one authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates["authority"]))
    monkeypatch.setenv("SSL_CERT_DIR", str(certificates["authority"].parent / "none"))
    with loading._late_authorities():  # noqa: SLF001 - aiohttp is imported once per process
        return ssl.create_default_context()


def test_a_context_has_no_authorities_before_it_is_used(late: ssl.SSLContext) -> None:
    assert isinstance(late, LateContext)
    assert late.cert_store_stats()["x509_ca"] == 0


def test_the_first_connection_has_the_authorities_and_an_ordinary_context(late: ssl.SSLContext) -> None:
    connection = late.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")

    ordinary = ssl.create_default_context()
    assert connection.context is late
    assert type(late) is ssl.SSLContext
    assert late.get_ca_certs() == ordinary.get_ca_certs() != []
    assert (late.verify_mode, late.check_hostname, late.verify_flags, late.options) == (
        ordinary.verify_mode,
        ordinary.check_hostname,
        ordinary.verify_flags,
        ordinary.options,
    )


def test_a_process_that_may_connect_reads_the_authorities_at_its_start(late: ssl.SSLContext) -> None:
    loading.read_authorities()

    assert type(late) is ssl.SSLContext
    assert late.cert_store_stats()["x509_ca"] == 1


def test_contexts_read_the_authorities_at_once_again_afterwards(late: ssl.SSLContext) -> None:
    ordinary = ssl.create_default_context()

    assert type(ordinary) is ssl.SSLContext
    assert ordinary.cert_store_stats()["x509_ca"] == 1

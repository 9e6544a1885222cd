"""How Bearlake's clients verify a server with TLS: by the authorities that older Pythons and clients in other languages accept, too.

Since Python 3.13, `ssl.create_default_context` also wants what RFC 5280, 4.2.1, asks of issuers: a key usage in an authority's
certificate, and key identifiers. Private authorities often lack them (`openssl req -x509` adds no key usage). Chain, dates and names are
verified as before.

Source: https://docs.python.org/3/library/ssl.html#ssl.create_default_context (decision 358).
"""

import ssl
from pathlib import Path


def verifying_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client that verifies its server. `ca_file`: authorities in PEM; None: those that this machine trusts.

    Raises `OSError` (`ssl.SSLError` is one): the file cannot be read or used.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    return context

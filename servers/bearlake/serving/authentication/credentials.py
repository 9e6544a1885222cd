"""How SCRAM credentials are made and checked. `metadata/users.py` says what they are.

Like Kafka, a password is hashed as its UTF-8 bytes, without SASLprep.

Source: RFC 5802 section 3; KIP-554 (limits of iterations).
"""

import hashlib
import hmac
import secrets

from bearlake.errors import Invalid
from bearlake.metadata.users import SCRAM_HASHES, ScramCredential

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""Kafka's limits. The upper one bounds what a login with a plain password costs (about 10 ms)."""

SALT_BYTES = 24
SALT_BYTES_MIN = 12
SALT_BYTES_MAX = 256
PASSWORD_BYTES_MAX = 1_024


def create_credential(mechanism: str, password: str, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """Return a credential with a fresh salt. Takes milliseconds of CPU time: call it outside the event loop.

    Raises:
        Invalid: an unknown mechanism, too few or too many iterations, or a password that is empty or too long.
    """
    _check_iterations(mechanism, iterations)
    if not password:
        raise Invalid("a password must not be empty")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise Invalid(f"a password must not have more than {PASSWORD_BYTES_MAX} bytes")
    salt = secrets.token_bytes(SALT_BYTES)
    return from_salted_password(mechanism, iterations, salt, _salted(mechanism, password, salt, iterations))


def from_salted_password(mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> ScramCredential:
    """Return the credential for a password that the client salted, as Kafka's AlterUserScramCredentials sends it.

    Raises:
        Invalid: an unknown mechanism, a wrong number of iterations, or a salt or salted password of a wrong size.
    """
    _check_iterations(mechanism, iterations)
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise Invalid(f"a salt has {len(salt)} bytes, expected {SALT_BYTES_MIN} to {SALT_BYTES_MAX}")
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    if len(salted_password) != size:
        raise Invalid(f"a salted password of {mechanism} has {len(salted_password)} bytes, expected {size}")
    client_key = hmac.digest(salted_password, b"Client Key", SCRAM_HASHES[mechanism])
    return ScramCredential(
        mechanism,
        iterations,
        salt,
        stored_key=hashlib.new(SCRAM_HASHES[mechanism], client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", SCRAM_HASHES[mechanism]),
    )


def has_password(credential: ScramCredential, password: str) -> bool:
    """Whether the credential was made from `password`. Takes milliseconds of CPU time: call it outside the event loop."""
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        return False
    salted = _salted(credential.mechanism, password, credential.salt, credential.iterations)
    server_key = hmac.digest(salted, b"Server Key", SCRAM_HASHES[credential.mechanism])
    return hmac.compare_digest(server_key, credential.server_key)


def decoy_credential(mechanism: str, user: str, decoy_key: bytes) -> ScramCredential:
    """Return a credential that no password fits, always the same one for a user and key.

    A login of an unknown user runs against a decoy, so it takes the same messages and the same time as a login with a wrong password. All
    servers of a deployment need the same secret `decoy_key`; otherwise their salts differ and show that the user is unknown.
    """
    _check_iterations(mechanism, ITERATIONS_MIN)
    seed = hmac.digest(decoy_key, f"{mechanism}\0{user}".encode(), "sha512")
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    return ScramCredential(
        mechanism, ITERATIONS_MIN, seed[:SALT_BYTES], secrets.token_bytes(size), secrets.token_bytes(size)
    )


def _check_iterations(mechanism: str, iterations: int) -> None:
    if mechanism not in SCRAM_HASHES:
        raise Invalid(f"unknown SCRAM mechanism {mechanism!r}, expected {' or '.join(SCRAM_HASHES)}")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise Invalid(f"{iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)

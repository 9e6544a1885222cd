"""Users that log in by SCRAM, created through Kafka's API, so that the suites need no program of the server's own."""

import secrets
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

TIMEOUT_S = 30
ITERATION_COUNT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """A user with a password, for SCRAM with 256 and 512 bits."""

    name: str
    password: str


def create(bootstrap: str, name: str) -> ScramUser:
    """Create the user at the listener `bootstrap`, whose clients may do so without a login.

    Raises:
        KafkaException: the server refused.
    """
    user = ScramUser(name=name, password=secrets.token_hex(8))
    mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for mechanism in mechanisms:  # in a request each: Apache Kafka refuses a user who is in one request twice
        hashed = ScramCredentialInfo(mechanism, ITERATION_COUNT)
        wanted = UserScramCredentialUpsertion(user.name, hashed, user.password.encode())
        for outcome in admin.alter_user_scram_credentials([wanted], request_timeout=TIMEOUT_S).values():
            outcome.result(TIMEOUT_S)
    return user

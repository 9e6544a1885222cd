"""A login of a Kafka connection ends after its time, whatever happens to the clock of the machine."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bearlake.protocols.kafka.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from bearlake.protocols.kafka.sasl import SaslSession
from bearlake.serving.authentication.authenticator import Authenticator
from bearlake.serving.authentication.issuer import no_keys
from bearlake.serving.authentication.peer import Peer
from bearlake.serving.authentication.settings import PLAIN, AuthenticationSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.serving.authentication.tokens import Tokens
from fixtures.users import Users

HOUR_S = 3600.0


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize(
    ("set_s", "passed_s", "is_logged_in"),
    [(0.0, HOUR_S - 1, True), (0.0, HOUR_S, False), (-86_400.0, HOUR_S, False), (86_400.0, 0.0, False)],
)
async def test_a_login_lasts_an_hour_at_most(
    executor: ThreadPoolExecutor, set_s: float, passed_s: float, is_logged_in: bool
) -> None:
    """`set_s`: by how much the clock is set after the login. `passed_s`: the time that really passes."""
    settings = AuthenticationSettings(mechanisms=[PLAIN], session_ms_max=int(HOUR_S * 1000))
    tokens = Tokens(settings.token, SigningKeys(no_keys, refresh_ms=1, retry_ms=1, stale_ms_max=1))
    authenticator = Authenticator(settings, Users({"alice": "secret"}), tokens, executor)
    clock, passed = [1_000_000.0], [0.0]
    session = SaslSession(authenticator, Peer("127.0.0.1", False, [PLAIN]), lambda: clock[0], lambda: passed[0])
    session.handshake(SaslHandshakeRequest(mechanism=PLAIN))
    await session.authenticate(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    assert session.is_logged_in

    passed[0] += passed_s
    clock[0] += passed_s + set_s
    assert session.is_logged_in is is_logged_in

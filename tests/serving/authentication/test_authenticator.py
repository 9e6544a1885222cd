"""The front of authentication: which mechanisms a client may use, and how many failures it may have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bearlake.errors import Denied, Invalid, Overloaded
from bearlake.serving.authentication.authenticator import MECHANISMS, AuthenticationSettings, Authenticator, Peer
from bearlake.serving.authentication.certificates import CertificateNames
from bearlake.serving.authentication.failures import Failures, FailureSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.serving.authentication.tokens import Tokens, TokenSettings
from fixtures.people import People

FAR, FAR_TLS, NEAR = Peer("192.0.2.1", False), Peer("192.0.2.1", True), Peer("127.0.0.1", False)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def authenticator(executor: ThreadPoolExecutor, **settings: object) -> Authenticator:
    token = TokenSettings(issuer="https://issuer.example", audience="bearlake")
    full = AuthenticationSettings(**{"mechanisms": list(MECHANISMS), "token": token, **settings})  # type: ignore[arg-type]

    async def nothing() -> bytes:
        return b'{"keys": []}'

    keys = SigningKeys(nothing, refresh_ms=1, retry_ms=1, stale_ms_max=1)
    return Authenticator(full, People({"alice": "secret"}), Tokens(token, keys), executor)


async def test_a_secret_is_accepted_only_on_tls_or_from_this_machine(executor: ThreadPoolExecutor) -> None:
    front = authenticator(executor)
    assert front.mechanisms(FAR) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert set(front.mechanisms(FAR_TLS)) == set(front.mechanisms(NEAR)) == set(MECHANISMS)
    with pytest.raises(Denied, match="TLS"):
        await front.log_in("alice", "secret", FAR)
    with pytest.raises(Denied, match="TLS"):
        await front.verify_token("a.b.c", FAR)
    assert str((await front.log_in("alice", "secret", FAR_TLS)).principal) == "User:alice"
    assert (
        str((await authenticator(executor, plain_without_tls=True).log_in("alice", "secret", FAR)).principal)
        == "User:alice"
    )


async def test_a_mechanism_that_is_not_enabled_is_refused_with_the_others_named(executor: ThreadPoolExecutor) -> None:
    front = authenticator(executor, mechanisms=["SCRAM-SHA-512"])
    with pytest.raises(Denied, match="SCRAM-SHA-512"):
        await front.log_in("alice", "secret", NEAR)
    with pytest.raises(Denied):
        front.start_scram("SCRAM-SHA-256", NEAR)


@pytest.mark.parametrize("user", ["alice", "ghost"])
async def test_guessing_ends_after_the_allowance(executor: ThreadPoolExecutor, user: str) -> None:
    front = authenticator(executor, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    for _ in range(3):
        with pytest.raises(Denied):
            await front.log_in(user, "wrong", NEAR)
    with pytest.raises(Overloaded, match=r"retry in \d+ s"):
        await front.log_in("alice", "secret", NEAR)
    await front.log_in("alice", "secret", FAR_TLS)  # another address is not affected


def test_an_allowance_returns_with_time() -> None:
    now = [0.0]
    failures = Failures(FailureSettings(per_address_max=2, window_ms=10_000), lambda: now[0])
    failures.failed("a", "")
    failures.failed("a", "")
    with pytest.raises(Overloaded):
        failures.check("a", "")
    now[0] = 5.1
    failures.check("a", "")


def test_failures_elsewhere_do_not_lock_a_user_out_where_it_logged_in() -> None:
    failures = Failures(FailureSettings(per_address_max=1000, per_user_max=5, window_ms=3_600_000), lambda: 0.0)
    failures.succeeded("home", "alice")
    for address in range(5):
        failures.failed(f"attacker-{address}", "alice")
    failures.check("home", "alice")
    failures.check("attacker-9", "bob")
    with pytest.raises(Overloaded):
        failures.check("attacker-9", "alice")


def test_the_tables_of_failures_are_bounded() -> None:
    failures = Failures(FailureSettings(per_address_max=1, entries_max=10, window_ms=3_600_000), lambda: 0.0)
    for address in range(1_000):
        failures.failed(f"a{address}", f"u{address}")
        failures.succeeded(f"a{address}", f"u{address}")
    failures.check("a0", "")  # forgotten: it was idle longest
    with pytest.raises(Overloaded):
        failures.check("a999", "")


SUBJECT = ((("countryName", "DE"),), (("organizationName", "Bears, Ltd"),), (("commonName", "alice"),))


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (["DEFAULT"], r"CN=alice,O=Bears\, Ltd,C=DE"),
        (["RULE:^CN=(.*?),.*$/$1/", "DEFAULT"], "alice"),
        (["RULE:^CN=(.*?),.*$/$1/U"], "ALICE"),
        (["RULE:^UID=(.*?),.*$/$1/", r"RULE:^CN=(.*?),O=(.*?)\\, .*$/$1@$2/L"], "alice@bears"),
    ],
)
def test_a_certificate_names_a_user_by_the_first_rule_that_matches(rules: list[str], name: str) -> None:
    assert CertificateNames(rules).name(SUBJECT) == name


def test_a_certificate_that_no_rule_matches_names_nobody() -> None:
    with pytest.raises(Denied):
        CertificateNames(["RULE:^UID=(.*)$/$1/"]).name(SUBJECT)


@pytest.mark.parametrize("rule", ["", "default", "RULE:a", "RULE:(/x/", "RULE:a/b/X"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(Invalid):
        CertificateNames([rule])

"""Authentication: which mechanisms a client may use, and how many failures it may have."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from scramp import ScramClient

from bearlake.errors import Denied, Invalid, Overloaded
from bearlake.metadata.users import ScramCredential
from bearlake.serving.authentication.authenticator import Authenticator
from bearlake.serving.authentication.certificates import CertificateNames
from bearlake.serving.authentication.credentials import has_password
from bearlake.serving.authentication.failures import Failures
from bearlake.serving.authentication.peer import LoginRules, Peer, is_open_to_others, login_rules
from bearlake.serving.authentication.settings import MECHANISMS, AuthenticationSettings, FailureSettings, TokenSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.serving.authentication.tokens import Tokens
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.principal import Principal
from fixtures.users import Users

FAR, FAR_TLS = Peer("192.0.2.1", False, MECHANISMS), Peer("192.0.2.1", True, MECHANISMS)
TLS = ListenerSettings(tls_certificate_file="a", tls_key_file="b", tls_client_ca_file="c")
NEAR = Peer("127.0.0.1", False, MECHANISMS)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def new_authenticator(executor: ThreadPoolExecutor, **settings: object) -> Authenticator:
    token = TokenSettings(issuer="https://issuer.example", audience="bearlake")
    full = AuthenticationSettings(**{"mechanisms": list(MECHANISMS), "token": token, **settings})  # type: ignore[arg-type]

    async def nothing() -> bytes:
        return b'{"keys": []}'

    keys = SigningKeys(nothing, refresh_ms=1, retry_ms=1, stale_ms_max=1)
    return Authenticator(full, Users({"alice": "secret"}), Tokens(token, keys), executor)


async def test_a_secret_is_accepted_only_on_tls_or_from_this_machine(executor: ThreadPoolExecutor) -> None:
    authenticator = new_authenticator(executor)
    assert authenticator.mechanisms(FAR) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert set(authenticator.mechanisms(FAR_TLS)) == set(authenticator.mechanisms(NEAR)) == set(MECHANISMS)
    with pytest.raises(Denied, match="TLS"):
        await authenticator.log_in("alice", "secret", FAR)
    with pytest.raises(Denied, match="TLS"):
        await authenticator.verify_token("a.b.c", FAR)
    assert str(await authenticator.log_in("alice", "secret", FAR_TLS)) == "User:alice"
    careless = new_authenticator(executor, plain_without_tls=True)
    assert str(await careless.log_in("alice", "secret", FAR)) == "User:alice"


async def test_a_listener_can_accept_tokens_but_no_passwords_without_tls(executor: ThreadPoolExecutor) -> None:
    authenticator = new_authenticator(executor)
    rules = LoginRules(["PLAIN", "OAUTHBEARER"], tokens_without_tls=True)

    assert authenticator.mechanisms(rules.peer("192.0.2.1", is_encrypted=False, listener="rest")) == ["OAUTHBEARER"]
    assert authenticator.mechanisms(rules.peer("192.0.2.1", is_encrypted=True, listener="rest")) == [
        "PLAIN",
        "OAUTHBEARER",
    ]
    assert (
        authenticator.mechanisms(LoginRules(rules.mechanisms).peer("192.0.2.1", is_encrypted=False, listener="")) == []
    )


async def test_the_refusal_of_a_disabled_mechanism_names_the_enabled_ones(executor: ThreadPoolExecutor) -> None:
    authenticator, peer = new_authenticator(executor), Peer("127.0.0.1", False, ["SCRAM-SHA-512"])
    with pytest.raises(Denied, match="SCRAM-SHA-512"):
        await authenticator.log_in("alice", "secret", peer)
    with pytest.raises(Denied):
        authenticator.start_scram("SCRAM-SHA-256", peer)


@pytest.mark.parametrize("user", ["alice", "ghost"])
async def test_guessing_ends_after_the_allowance(executor: ThreadPoolExecutor, user: str) -> None:
    authenticator = new_authenticator(executor, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    for _ in range(3):
        with pytest.raises(Denied):
            await authenticator.log_in(user, "wrong", NEAR)
    with pytest.raises(Overloaded, match=r"retry in \d+ s"):
        await authenticator.log_in("alice", "secret", NEAR)
    await authenticator.log_in("alice", "secret", FAR_TLS)  # another address is not affected


async def test_logins_that_wait_for_the_same_password_check_it_once(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many connections of one service log in at once after a restart."""
    checked: list[str] = []

    def check(credential: ScramCredential, password: str) -> bool:
        checked.append(password)
        return has_password(credential, password)

    monkeypatch.setattr("bearlake.serving.authentication.authenticator.has_password", check)
    authenticator = new_authenticator(executor)
    found = await asyncio.gather(*(authenticator.log_in("alice", "secret", NEAR) for _ in range(50)))

    assert {str(who) for who in found} == {"User:alice"}
    assert checked == ["secret"]


async def test_a_user_is_not_locked_out_where_a_known_password_let_it_in(executor: ThreadPoolExecutor) -> None:
    """A password that was right at one address is not checked again at the next one, which counts as a login all the same."""
    limits = FailureSettings(per_address_max=3, per_user_max=3, window_ms=3_600_000)
    authenticator = new_authenticator(executor, failures=limits)
    first, second, attacker, new = (Peer(f"192.0.2.{number}", True, MECHANISMS) for number in range(1, 5))
    for peer in (first, second):
        await authenticator.log_in("alice", "secret", peer)
    for _ in range(3):
        with pytest.raises(Denied):
            await authenticator.log_in("alice", "wrong", attacker)

    for peer in (first, second):
        assert str(await authenticator.log_in("alice", "secret", peer)) == "User:alice"
    with pytest.raises(Overloaded):
        await authenticator.log_in("alice", "secret", new)


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


async def test_a_neighbour_with_a_wrong_password_does_not_lock_a_user_out(executor: ThreadPoolExecutor) -> None:
    """Both are behind one proxy; the neighbour's client repeats its wrong password without end, as librdkafka does."""
    authenticator = new_authenticator(executor, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    await authenticator.log_in("alice", "secret", NEAR)
    for number in range(3):
        with pytest.raises(Denied):
            await authenticator.log_in("bob", f"guess {number}", NEAR)
    for user in ("bob", "carol"):
        with pytest.raises(Overloaded):
            await authenticator.log_in(user, "guess", NEAR)

    assert str(await authenticator.log_in("alice", "secret", NEAR)) == "User:alice"
    assert str(await scram_login(authenticator, "alice", "secret", NEAR)) == "User:alice"
    for number in range(3):
        with pytest.raises(Denied):
            await authenticator.log_in("alice", f"guess {number}", NEAR)
    with pytest.raises(Overloaded):
        await authenticator.log_in("alice", "secret", NEAR)


async def scram_login(authenticator: Authenticator, user: str, password: str, peer: Peer) -> Principal | None:
    client = ScramClient(["SCRAM-SHA-512"], user, password)
    login = authenticator.start_scram("SCRAM-SHA-512", peer)
    first, _ = await login.answer(client.get_client_first().encode())
    client.set_server_first(first.decode())
    return (await login.answer(client.get_client_final().encode()))[1]


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
def test_an_invalid_rule_is_refused(rule: str) -> None:
    with pytest.raises(Invalid):
        CertificateNames([rule])


async def test_guesses_at_once_are_counted_like_guesses_in_a_row(executor: ThreadPoolExecutor) -> None:
    authenticator = new_authenticator(executor, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    guesses = (authenticator.log_in("alice", f"guess {n}", NEAR) for n in range(50))
    results = await asyncio.gather(*guesses, return_exceptions=True)

    assert sum(isinstance(result, Denied) for result in results) == 3
    assert sum(isinstance(result, Overloaded) for result in results) == 47


async def test_one_address_cannot_take_the_turns_of_all(executor: ThreadPoolExecutor) -> None:
    authenticator = new_authenticator(executor, checks_waiting_per_address_max=2, checks_waiting_max=4)
    many = [asyncio.ensure_future(authenticator.log_in("alice", "secret", NEAR)) for _ in range(50)]
    await asyncio.sleep(0)

    assert str(await authenticator.log_in("alice", "secret", FAR_TLS)) == "User:alice"
    results = await asyncio.gather(*many, return_exceptions=True)
    assert sum(isinstance(result, Overloaded) for result in results) == 48


@pytest.mark.parametrize("user", ["x" * 100_000, "a\0b", "\ud800"])
async def test_a_name_that_no_user_can_have_is_refused_like_an_unknown_user(
    executor: ThreadPoolExecutor, user: str
) -> None:
    with pytest.raises(Denied, match="user name or the password is wrong"):
        await new_authenticator(executor).log_in(user, "secret", NEAR)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not an address", "not an address"),
    ],
)
def test_failures_are_counted_for_the_network_of_one_client(address: str, network: str) -> None:
    assert Peer(address, False, []).network == network


@pytest.mark.parametrize(
    ("listener", "mechanisms", "by_certificate"),
    [
        (ListenerSettings(), ["PLAIN"], False),
        (ListenerSettings(mechanisms=["SCRAM-SHA-512"]), ["SCRAM-SHA-512"], False),
        (ListenerSettings(anonymous=True), [], False),
        (TLS, [], True),
        (replace(TLS, mechanisms=["SCRAM-SHA-512"]), ["SCRAM-SHA-512"], False),
        (replace(TLS, anonymous=True), [], False),
    ],
)
def test_a_listener_says_how_its_clients_log_in(
    listener: ListenerSettings, mechanisms: list[str], by_certificate: bool
) -> None:
    rules = login_rules(listener, AuthenticationSettings(mechanisms=["PLAIN"]))
    assert (list(rules.mechanisms), rules.by_certificate) == (mechanisms, by_certificate)
    assert not login_rules(ListenerSettings(), AuthenticationSettings()).is_required


@pytest.mark.parametrize(
    ("listener", "is_open"),
    [
        (ListenerSettings(), False),
        (ListenerSettings(host="0.0.0.0"), True),
        (ListenerSettings(host="192.0.2.1"), True),
        (ListenerSettings(host="0.0.0.0", anonymous=True), True),
        (ListenerSettings(host="0.0.0.0", mechanisms=["PLAIN"]), False),
        (replace(TLS, host="0.0.0.0"), False),
    ],
)
def test_a_listener_is_open_if_other_machines_reach_it_without_a_login(
    listener: ListenerSettings, is_open: bool
) -> None:
    assert is_open_to_others(listener, AuthenticationSettings()) == is_open


async def test_a_password_that_was_right_waits_behind_the_guesses_that_came_before(
    executor: ThreadPoolExecutor,
) -> None:
    """Otherwise guesses at once would be answered before the guesses before them are counted."""
    authenticator = new_authenticator(executor, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    assert str(await authenticator.log_in("alice", "secret", NEAR)) == "User:alice"
    guesses = [f"guess {number}" for number in range(10)]
    tries = [*guesses, "secret"]
    answers = await asyncio.gather(
        *(authenticator.log_in("alice", password, NEAR) for password in tries), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == ["Denied"] * 3 + ["MustWait"] * 8


async def test_a_password_that_was_right_is_not_checked_again(executor: ThreadPoolExecutor) -> None:
    authenticator = new_authenticator(executor)
    await authenticator.log_in("alice", "secret", NEAR)
    executor.shutdown()  # a check would fail
    assert str(await authenticator.log_in("alice", "secret", NEAR)) == "User:alice"
    with pytest.raises(RuntimeError):
        await authenticator.log_in("alice", "wrong", NEAR)

"""The console for users with few rights: no page shows what they may not see, and no change that a page can send is made for them."""

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fixtures.server_process import finished, started
from fixtures.waiting import WAIT_S

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)")

from playwright.sync_api import expect

expect.set_options(timeout=WAIT_S * 1000)

PASSWORD = "a password of this test"
SETTINGS = {
    "authentication": {"mechanisms": ["PLAIN"]},
    "access": {"super_users": ["User:root"], "allow_if_no_rule": False},
}
RULES = {
    "reader": (("Read", "Topic:hers"),),
    "grouper": (("Read", "Group:hers"),),
    "nobody": (),
}
HIDDEN = "hidden-bears"
"""The name of a stream, group, subscription, subject and table that no user but root may see; also in its records."""
PAGES = (
    "", "streams", "groups", "share-groups", "subscriptions", "schemas", "tables", "sql", "compaction", "access", "settings",
    *(f"streams/{HIDDEN}/{part}" for part in ("records", "partitions", "configuration", "produce")),
    f"groups/{HIDDEN}", f"share-groups/{HIDDEN}", f"subscriptions/{HIDDEN}/{HIDDEN}", f"schemas/{HIDDEN}-value",
    f"tables/streams/{HIDDEN}",
)  # fmt: skip


class Secured:
    """A deployment whose console is asked with the login of a user."""

    def __init__(self, process: Any, stores: tuple[Any, ...]) -> None:
        self.console = str(process.ready["console"])
        self._stores = stores
        (found,) = self.ask("root", "GET", "rest/v3/clusters")[1]["data"]
        self.cluster = f"rest/v3/clusters/{found['cluster_id']}"

    def ask(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request through the console; returns the status and the JSON or text of the answer."""
        octets = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if user:
            headers["Authorization"] = "Basic " + b64encode(f"{user}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(f"{self.console}/api/{path}", octets, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def access(self, word: str, user: str, operation: str, resource: str) -> None:
        """Allow something to a user, or with the word `delete` take it away."""
        rule = ("--principal", f"User:{user}", "--operation", operation, "--resource", resource)
        done = finished("access", word, *rule, *self._stores)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, chromium_path: str) -> Iterator[Secured]:
    """`bearlake up` with root, and the users of `RULES`."""
    folder = tmp_path_factory.mktemp("rights")
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    words = ("up", "--data-dir", folder / "data", "--config", config, "--no-tour", "--no-compaction")
    environ = {"BEARLAKE_ADMIN_TOKEN": "a-token-of-this-test"}
    with started(*words, ready_file=folder / "ready.json", environ=environ) as process:
        stores = ("--data-dir", folder / "data", "--config", config)
        for name in ("root", *RULES):
            done = finished("user", "create", name, "--password-file", "-", *stores, stdin=PASSWORD.encode())
            assert done.returncode == 0, done.stderr
        lake = Secured(process, stores)
        for name, rules in RULES.items():
            for operation, resource in rules:
                lake.access("allow", name, operation, resource)
        for name in ("hers", HIDDEN):
            fill(lake, name)
        yield lake


def fill(lake: Secured, name: str) -> None:
    """Make a stream with a record, a group, a subscription and a schema of this name."""
    record = {"partition_id": 0, "value": {"type": "STRING", "data": f"the text of {name}"}}
    for status, method, path, body in (
        (201, "POST", f"{lake.cluster}/topics", {"topic_name": name, "partitions_count": 1}),
        (200, "POST", f"{lake.cluster}/topics/{name}/records", record),
        (200, "POST", f"registry/subjects/{name}-value/versions", {"schema": '"string"'}),
    ):
        found = lake.ask("root", method, path, body)
        assert found[0] == status, (path, found)


@pytest.mark.parametrize("user", ["", *RULES])
def test_no_page_shows_what_a_user_may_not_see(page: Any, lake: Secured, user: str) -> None:
    page.goto(lake.console)
    if user:
        log_in(page, user)
    shown = {}
    for address in PAGES:
        page.evaluate("address => { location.hash = `#/${address}` }", address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        own = page.locator("main").inner_text().replace(address.rpartition("/")[0], "")
        shown[address] = own

    assert [address for address, text in shown.items() if f"the text of {HIDDEN}" in text] == []
    lists = PAGES[: PAGES.index("settings") + 1]
    assert [address for address in lists if HIDDEN in shown[address]] == []
    assert ("hers" in shown["streams"]) == (user == "reader")


@pytest.mark.parametrize("user", ["", *RULES])
def test_no_change_that_a_page_can_send_is_made_for_a_user_without_the_right(lake: Secured, user: str) -> None:
    before = state(lake)
    topic, group = f"{lake.cluster}/topics/{HIDDEN}", f"{lake.cluster}/consumer-groups/{HIDDEN}"
    rule = {
        "resource": "Topic", "name": "*", "pattern": "Literal", "principal": f"User:{user}", "host": "*", "operation": "All",
        "permission": "Allow",
    }  # fmt: skip
    answers = {
        f"{method} {path}": lake.ask(user, method, path, body)
        for method, path, body in (
            ("POST", f"{lake.cluster}/topics", {"topic_name": "made", "partitions_count": 1}),
            ("DELETE", topic, None),
            ("DELETE", f"{lake.cluster}/topics/hers", None),
            ("POST", f"{topic}/configs:alter", {"data": [{"name": "retention.ms", "value": "1"}]}),
            ("POST", f"{lake.cluster}/topics/hers/configs:alter", {"data": [{"name": "retention.ms", "value": "1"}]}),
            ("POST", f"{topic}/records", {"value": {"type": "STRING", "data": "x"}}),
            ("POST", f"{lake.cluster}/topics/hers/records", {"value": {"type": "STRING", "data": "x"}}),
            ("POST", f"{topic}/records:read", {"start": "earliest"}),
            ("POST", f"{group}/offsets:reset", {"topic_name": HIDDEN, "to": "latest"}),
            ("POST", f"{lake.cluster}/share-groups/{HIDDEN}/offsets:reset", {"topic_name": HIDDEN, "to": "latest"}),
            ("POST", f"{topic}/subscriptions/{HIDDEN}/offsets:reset", {"to": "latest"}),
            ("POST", f"registry/compatibility/subjects/{HIDDEN}-value/versions/latest", {"schema": '"int"'}),
            ("GET", f"registry/subjects/{HIDDEN}-value/versions/1", None),
            ("POST", "admin/v1/streams", {"streams": [{"name": "made", "partition_count": 1}]}),
            ("DELETE", "admin/v1/streams", {"names": [HIDDEN]}),
            ("PATCH", "admin/v1/streams", {"streams": [{"name": HIDDEN, "set": {"retention.ms": "1"}}]}),
            ("GET", f"admin/v1/streams/{HIDDEN}", None),
            ("POST", "admin/v1/access", {"rules": [rule]}),
            ("DELETE", "admin/v1/access", {"rules": [rule]}),
            ("POST", "admin/v1/compaction/tasks/1/retry", None),
            ("POST", "catalog/v1/sql", {"statement": f'select decode(_value) from "{HIDDEN}"'}),
            ("GET", f"catalog/v1/live/namespaces/streams/tables/{HIDDEN}", None),
        )
    }

    accepted = {what: answer for what, answer in answers.items() if answer[0] < 400}
    assert accepted == {}
    assert state(lake) == before
    told = {what for what, (_, body) in answers.items() if "the text of" in json.dumps(body)}
    assert told == set()


def state(lake: Secured) -> Any:
    """What the changes would change, as root sees it."""
    asked = [
        "admin/v1/streams", "admin/v1/access", f"{lake.cluster}/topics", f"{lake.cluster}/topics/{HIDDEN}/configs",
        f"{lake.cluster}/topics/hers/configs", f"admin/v1/streams/{HIDDEN}/partitions", "admin/v1/streams/hers/partitions",
        "registry/subjects",
    ]  # fmt: skip
    found = {path: lake.ask("root", "GET", path) for path in asked}
    assert {path: answer[0] for path, answer in found.items()} == dict.fromkeys(asked, 200)
    return found


def test_a_right_that_is_taken_away_ends_what_an_open_page_shows(page: Any, lake: Secured) -> None:
    topic = f"{lake.cluster}/topics/hers/records"
    page.goto(f"{lake.console}/#/streams/hers")
    log_in(page, "reader")
    expect(page.get_by_text("the text of hers")).to_be_visible()
    lake.access("delete", "reader", "Read", "Topic:hers")
    while lake.ask("reader", "POST", f"{topic}:read", {"start": "earliest"})[0] < 400:
        pass
    record = {"partition_id": 0, "value": {"type": "STRING", "data": "written afterwards"}}
    assert lake.ask("root", "POST", topic, record)[0] == 200
    expect(page.get_by_role("alert").first).to_be_visible()
    shown = page.get_by_text("written afterwards").count()
    lake.access("allow", "reader", "Read", "Topic:hers")

    assert shown == 0


def log_in(page: Any, name: str) -> None:
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("User", exact=True).fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("dialog").get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_text(f"Logged in: {name}")).to_be_visible()

"""The console where clients log in: it shows to each user what the APIs let that user see, and asks for a login where they do."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fixtures.server_process import finished, started
from fixtures.waiting import WAIT_S

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)")

from playwright.sync_api import expect

expect.set_options(timeout=WAIT_S * 1000)

PASSWORDS = {"root": "of all bears", "alice": "of one stream"}
SETTINGS = {
    "authentication": {"mechanisms": ["PLAIN"]},
    "access": {"super_users": ["User:root"], "allow_if_no_rule": False},
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, chromium_path: str) -> Iterator[Any]:
    """`bearlake up` with a super user, and alice, who may use the stream `hers` only."""
    folder = tmp_path_factory.mktemp("secured")
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    words = ("up", "--data-dir", folder / "data", "--config", config, "--no-tour")
    environ = {"BEARLAKE_ADMIN_TOKEN": "a-token-of-this-test"}
    with started(*words, ready_file=folder / "ready.json", environ=environ) as process:
        stores = ("--data-dir", folder / "data", "--config", config)
        for name, password in PASSWORDS.items():
            done = finished("user", "create", name, "--password-file", "-", *stores, stdin=password.encode())
            assert done.returncode == 0, done.stderr
        rule = ("--principal", "User:alice", "--operation", "All", "--resource", "Topic:hers")
        assert finished("access", "allow", *rule, *stores).returncode == 0
        admin = ("--admin", process.admin)
        assert finished("stream", "create", "hers", "secret", *admin, environ=environ).returncode == 0
        yield SimpleNamespace(console=process.ready["console"])


def log_in(page: Any, name: str) -> None:
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("User", exact=True).fill(name)
    page.get_by_label("Password").fill(PASSWORDS[name])
    page.get_by_role("dialog").get_by_role("button", name="Log in", exact=True).click()


def test_without_a_login_nothing_is_shown_and_the_browser_asks_for_nothing_itself(page: Any, lake: Any) -> None:
    page.goto(lake.console)
    expect(page.get_by_role("alert").first).to_contain_text("Log in to see this")
    page.goto(f"{lake.console}/#/streams")
    expect(page.get_by_role("alert").first).to_contain_text("Log in to see this")

    expect(page.get_by_role("link", name="secret")).to_have_count(0)


def test_a_super_user_sees_everything_after_the_login(page: Any, lake: Any) -> None:
    page.goto(lake.console)
    log_in(page, "root")
    expect(page.get_by_text("2 streams")).to_be_visible()
    expect(page.get_by_text("Logged in: root")).to_be_visible()
    page.get_by_role("link", name="Streams", exact=True).click()

    expect(page.get_by_role("link", name="secret")).to_be_visible()


def test_a_user_sees_and_does_what_the_rules_allow(page: Any, lake: Any) -> None:
    page.goto(f"{lake.console}/#/streams")
    log_in(page, "alice")
    expect(page.get_by_role("link", name="hers")).to_be_visible()
    expect(page.get_by_role("link", name="secret")).to_have_count(0)
    page.goto(f"{lake.console}/#/streams/hers/produce")
    page.get_by_label("Value", exact=True).fill("by alice")
    page.get_by_role("button", name="Write the record").click()
    page.get_by_role("link", name="Show the records").click()
    expect(page.get_by_role("row").filter(has_text="by alice")).to_be_visible()
    page.get_by_role("link", name="Overview").click()

    expect(page.get_by_role("alert").first).to_contain_text("not one of access.super_users")


def test_a_reload_forgets_the_login(page: Any, lake: Any) -> None:
    page.goto(lake.console)
    log_in(page, "root")
    expect(page.get_by_text("Logged in: root")).to_be_visible()
    page.reload()

    expect(page.get_by_role("alert").first).to_contain_text("Log in to see this")


def test_a_wrong_password_is_refused_by_the_apis(page: Any, lake: Any) -> None:
    page.goto(lake.console)
    page.get_by_role("button", name="Log in", exact=True).first.click()
    page.get_by_label("User", exact=True).fill("root")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("dialog").get_by_role("button", name="Log in", exact=True).click()

    expect(page.get_by_role("alert").first).to_contain_text("Log in to see this")

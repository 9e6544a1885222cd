"""Share groups and Pulsar subscriptions in a real browser: who reads, how far behind, and a reset with a preview."""

import re
from typing import Any

import pytest

from fixtures.console_lake import Lake, open_page, row
from fixtures.waiting import WAIT_S

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)")

from playwright.sync_api import expect

expect.set_options(timeout=WAIT_S * 1000)


def lags_of(lake: Lake, group: str) -> dict[int, int]:
    found = lake.rest("GET", f"{lake.cluster}/share-groups/{group}/lags")["data"]
    return {lag["partition_id"]: lag["current_offset"] for lag in found}


def test_the_three_kinds_of_readers_are_one_step_apart(page: Any, lake: Lake) -> None:
    open_page(page, lake, "groups")
    expect(page.get_by_role("link", name="billing")).to_be_visible()
    expect(page.get_by_role("link", name="packers")).to_have_count(0)
    page.get_by_role("link", name="Share groups").click()
    expect(row(page, "packers")).to_contain_text("empty")
    page.get_by_role("link", name="Pulsar subscriptions").click()
    expect(row(page, "persistent://public/default/audit")).to_contain_text("archive")
    page.get_by_label("Stream", exact=True).fill("audit")

    expect(page.get_by_role("row")).to_have_count(2)


def test_a_share_group_shows_its_members_and_its_lag_in_records_and_time(
    page: Any, lake: Lake, keep_picture: Any
) -> None:
    with lake.sharing("packers", "orders"):
        open_page(page, lake, "share-groups/packers")
        expect(page.get_by_role("heading", name="Members")).to_be_visible()
        members = page.get_by_role("group", name="Members")
        expect(members.get_by_role("row")).to_have_count(2)
        expect(members).to_contain_text("127.0.0.1")
        expect(page.get_by_text("age of the oldest record that is next")).to_be_visible()
        keep_picture(page, "share-group-members-light")
        page.get_by_role("button", name="Reset offsets …").click()

        expect(page.get_by_text("Stop its consumers first")).to_be_visible()


def test_a_share_groups_offsets_are_reset_after_a_preview(page: Any, lake: Lake, keep_picture: Any) -> None:
    lake.share("resetters", "orders")
    open_page(page, lake, "share-groups/resetters")
    page.get_by_role("button", name="Reset offsets …").click()
    page.get_by_label("Move to").select_option("earliest")
    page.get_by_role("button", name="Show what would move").click()
    expect(page.get_by_role("group", name="What would move").get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("dialog")).to_contain_text("bearlake group reset resetters --stream orders --to earliest")
    keep_picture(page, "share-group-reset-light")
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_text("The offsets of 3 partitions were reset.")).to_be_visible()

    assert lags_of(lake, "resetters") == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("address", ["groups/nobody", "share-groups/nobody", "subscriptions/orders/nobody"])
def test_what_does_not_exist_has_no_button_to_reset_it(page: Any, lake: Lake, address: str) -> None:
    open_page(page, lake, address)
    expect(page.get_by_role("alert")).to_be_visible()

    expect(page.get_by_role("button", name="Reset")).to_have_count(0)


def test_a_subscription_shows_its_lag_and_moves_after_a_preview(page: Any, lake: Lake, keep_picture: Any) -> None:
    open_page(page, lake, "subscriptions/orders/archive")
    figures = page.locator("dl.figures")
    expect(figures).to_contain_text("nobody reads")
    expect(figures).to_contain_text(re.compile(r"Lag40records"))
    page.get_by_role("button", name="Reset the position …").click()
    page.get_by_label("Move to").select_option("latest")
    page.get_by_role("button", name="Show what would move").click()
    moves = page.get_by_role("group", name="What would move")
    expect(moves.get_by_role("row")).to_have_count(4)
    command = "bearlake group reset orders/archive --stream orders --to latest --execute"
    expect(page.get_by_role("dialog")).to_contain_text(command)
    keep_picture(page, "subscription-reset-light")
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_text("The offsets of 3 partitions were reset.")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(figures).to_contain_text(re.compile(r"Lag0records"))

    stats = lake.pulsar("GET", "/admin/v2/persistent/public/default/orders/partitioned-stats")
    assert stats["subscriptions"]["archive"]["msgBacklog"] == 0


def test_a_subscription_of_one_partition_goes_back_to_a_time(page: Any, lake: Lake) -> None:
    path = "/admin/v2/persistent/public/default/audit"
    lake.pulsar("PUT", f"{path}/subscription/later", "latest")
    open_page(page, lake, "subscriptions/audit/later")
    page.get_by_role("button", name="Reset the position …").click()
    page.get_by_label("Move to").select_option("timestamp")
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Show what would move").click()
    expect(page.get_by_role("dialog")).to_contain_text("--to time:2020-01-01T00:00:00.000Z --execute")
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_text("The offsets of 1 partition were reset.")).to_be_visible()

    backlog = lake.pulsar("GET", f"{path}/stats")["subscriptions"]["later"]["msgBacklog"]
    page.get_by_label("Move to").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("1")
    page.get_by_role("button", name="Show what would move").click()
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_text("The offsets of 1 partition were reset.")).to_be_visible()

    assert backlog >= 1
    assert lake.pulsar("GET", f"{path}/stats")["subscriptions"]["later"]["msgBacklog"] == backlog - 1

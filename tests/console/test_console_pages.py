"""Every page of the console in a real browser, on live data: what it shows, what it changes, and whether all can use it."""

import re
import time
from typing import Any

import pytest

from fixtures.console_lake import BEARS, PAGES, Lake, open_page, row
from fixtures.waiting import WAIT_S

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)")
pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python: pip install it (part of dev)")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

expect.set_options(timeout=WAIT_S * 1000)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_can_be_used_with_a_screen_reader(
    page: Any, lake: Lake, keep_picture: Any, name: str, theme: str
) -> None:
    address, title = PAGES[name]
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    open_page(page, lake, address)
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_text("Loading …")).to_have_count(0)
    keep_picture(page, f"{name}-{theme}")
    results = Axe().run(page)

    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_each_page_fits_a_telephone(page: Any, lake: Lake, keep_picture: Any, name: str) -> None:
    address, title = PAGES[name]
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, lake, address)
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_text("Loading …")).to_have_count(0)
    keep_picture(page, f"{name}-narrow")

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("header.side").bounding_box()["height"] < 140, "the navigation leaves room for the page"
    drawn = page.evaluate(
        "[...document.querySelectorAll('.plot svg, .timeline svg')].map(svg => svg.clientWidth / svg.viewBox.baseVal.width)"
    )
    assert all(scale > 0.9 for scale in drawn), "letters keep their size"


def test_the_overview_shows_streams_servers_and_what_waits(page: Any, lake: Lake) -> None:
    open_page(page, lake, "")

    expect(page.locator(".lead")).to_contain_text("groups, 1 server")
    expect(row(page, "kafka")).to_contain_text("live")
    expect(page.get_by_role("img", name="Records written: now")).to_be_visible()


def test_rows_of_the_overview_stay_low_on_a_telephone(page: Any, lake: Lake) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, lake, "")

    addresses = page.get_by_role("cell").filter(has_text="pulsar_http")
    expect(addresses).to_be_visible()
    assert addresses.bounding_box()["height"] < 220, "six lines of addresses"


def test_a_stream_leads_to_its_table(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/orders")

    page.get_by_role("link", name="streams.orders").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("streams.orders")


def test_an_address_that_changes_with_the_first_render_is_followed(page: Any, lake: Lake) -> None:
    page.add_init_script(
        """new MutationObserver((_, observer) => {
            if (!document.querySelector("h1")) return;
            observer.disconnect();
            location.hash = "#/tables";
        }).observe(document, { childList: true, subtree: true });"""
    )
    open_page(page, lake, "streams")

    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")


def test_streams_are_found_by_a_part_of_their_name(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams")
    expect(row(page, "orders")).to_contain_text("40")
    expect(row(page, "clicks")).to_contain_text("newest of each key")
    page.get_by_label("Search").fill("CLICK")

    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_text("1 stream found")).to_be_visible()


def test_a_stream_is_created_and_deleted_with_the_command_beside_it(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams")
    page.get_by_role("button", name="Create a stream").click()
    page.get_by_label("Name", exact=True).fill("made-here")
    page.get_by_label("Partitions").fill("2")
    expect(page.get_by_role("dialog")).to_contain_text("bearlake stream create made-here --partitions 2")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("made-here")
    assert lake.rest("GET", f"{lake.cluster}/topics/made-here")["partitions_count"] == 2
    page.get_by_role("button", name="Delete …").click()
    expect(page.get_by_role("button", name="Delete the stream")).to_be_disabled()
    page.get_by_label("Type the name of the stream").fill("made-here")
    page.get_by_role("button", name="Delete the stream").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")

    names = [topic["topic_name"] for topic in lake.rest("GET", f"{lake.cluster}/topics")["data"]]
    assert "made-here" not in names


def test_records_are_decoded_by_their_schema_with_exact_numbers(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/orders")
    expect(row(page, '"fish":39')).to_contain_text(BEARS[39 % 5])
    expect(page.locator("code", has_text="bearlake consume orders")).to_contain_text(" --schemas")
    row(page, '"fish":39').get_by_role("button").click()

    whole = page.locator("tr.whole")
    expect(whole).to_contain_text('"id": 9007199254741032')
    expect(whole).to_contain_text("AVRO, schema 1")
    expect(whole).to_contain_text("source = river")


def test_a_record_appears_as_soon_as_it_is_written_and_filters_choose(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/audit")
    expect(row(page, "the river rises")).to_be_visible()
    lake.write(
        "audit", {"key": {"type": "STRING", "data": "k1"}, "value": {"type": "STRING", "data": "salmon arrives"}}
    )
    expect(row(page, "salmon arrives")).to_be_visible()
    page.get_by_label("Value contains").fill("SALMON")
    expect(page.get_by_text("1 match")).to_be_visible()
    expect(page.get_by_text("the river rises")).to_have_count(0)
    expect(page.get_by_text("--filter-value '(?i)SALMON'")).to_be_visible()
    page.get_by_label("Value contains").fill("")
    page.get_by_label("Key contains").fill("k1")

    expect(page.get_by_text("1 match")).to_be_visible()


def test_a_pause_loses_no_record(page: Any, lake: Lake) -> None:
    lake.create("paused")
    open_page(page, lake, "streams/paused")
    expect(page.get_by_text("No records yet.")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused.")).to_be_visible()
    lake.write("paused", {"value": {"type": "STRING", "data": "written meanwhile"}})
    page.get_by_role("button", name="Go on").click()

    expect(row(page, "written meanwhile")).to_be_visible()


def test_partitions_show_their_offsets(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/orders/partitions")

    expect(page.get_by_role("row")).to_have_count(4)
    expect(page.get_by_text("bearlake stream describe orders")).to_be_visible()


def test_a_config_is_changed_and_reset_with_its_meaning_and_source(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/audit/configuration")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Value", exact=True).fill("3600000")
    expect(page.get_by_role("dialog")).to_contain_text("bearlake stream alter audit --set retention.ms=3600000")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row(page, "retention.ms")).to_contain_text("3600000")
    expect(row(page, "retention.ms")).to_contain_text("this stream")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Value", exact=True).fill("soon")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number")
    page.get_by_role("button", name="Reset to the default").click()

    expect(row(page, "retention.ms")).to_contain_text("default")


def test_a_record_is_written_and_its_place_is_shown(page: Any, lake: Lake) -> None:
    lake.create("written")
    open_page(page, lake, "streams/written/produce")
    page.get_by_label("Key").fill("it's")
    page.get_by_label("Value is").select_option("JSON")
    page.get_by_label("Value", exact=True).fill('{"id": 9007199254740993}')
    page.get_by_label("Headers").fill("source=page")
    expect(page.locator(".command code")).to_contain_text(r"--key 'it'\''s' --header source=page")
    page.get_by_role("button", name="Write the record").click()
    expect(page.get_by_text("Stored: partition 0, offset 0")).to_be_visible()
    page.get_by_role("link", name="Show the records").click()

    expect(row(page, "9007199254740993")).to_contain_text("it's")


def test_a_record_is_written_by_the_newest_schema(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams/orders/produce")
    page.get_by_label("Value is").select_option("SCHEMA")
    page.get_by_label("Value", exact=True).fill('{"id": 1}')
    page.get_by_role("button", name="Write the record").click()
    expect(page.get_by_role("alert")).to_contain_text("Avro")
    page.get_by_label("Value", exact=True).fill('{"id": 1, "bear": "Ursa", "fish": -7}')
    page.get_by_role("button", name="Write the record").click()
    expect(page.get_by_text("Stored: partition")).to_be_visible()
    page.get_by_role("link", name="Show the records").click()

    expect(row(page, '"fish":-7')).to_be_visible()


def test_groups_show_their_lag_and_a_reset_is_previewed_before_it_is_done(page: Any, lake: Lake) -> None:
    lake.create("reset")
    lake.write("reset", *[{"value": {"type": "STRING", "data": "v"}}] * 5)
    lake.read_with_group("mover", "reset")
    open_page(page, lake, "groups")
    expect(row(page, "mover")).to_contain_text("empty")
    page.get_by_role("link", name="mover").click()
    page.get_by_role("button", name="Reset offsets …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Reset the offsets")).to_be_disabled()
    dialog.get_by_label("Move to").select_option("offset")
    dialog.get_by_label("Offset").fill("2")
    dialog.get_by_role("button", name="Show what would move").click()
    expect(dialog.get_by_role("row").last).to_contain_text("2")
    expect(dialog.get_by_text("--to offset:2 --execute")).to_be_visible()
    dialog.get_by_role("button", name="Reset the offsets").click()
    expect(dialog.get_by_text("The offsets of 1 partition were reset.")).to_be_visible()

    (lag,) = lake.rest("GET", f"{lake.cluster}/consumer-groups/mover/lags")["data"]
    assert (lag["current_offset"], lag["lag"]) == (2, 3)


def test_a_subject_shows_what_changed_and_checks_a_new_schema(page: Any, lake: Lake) -> None:
    open_page(page, lake, "schemas")
    page.get_by_role("link", name="orders-value").click()
    expect(page.locator(".added").filter(has_text='"note"')).to_be_visible()
    expect(page.locator(".removed").filter(has_text="fish")).to_have_count(0)
    page.get_by_label("New schema").fill(
        '{"type": "record", "name": "Order", "fields": [{"name": "x", "type": "int"}]}'
    )
    page.get_by_role("button", name="Check against the newest version").click()
    expect(page.get_by_text("It would be refused.")).to_be_visible()
    page.get_by_label("New schema").fill('{"type": "record", "name": "Order", "fields": []}')
    page.get_by_role("button", name="Check against the newest version").click()

    expect(page.get_by_text("It would be accepted.")).to_be_visible()
    assert len(lake.registry("GET", "/subjects/orders-value/versions")) == 2


def test_compaction_shows_the_backlog_and_tries_a_quarantined_task_again(page: Any, lake: Lake) -> None:
    task = {
        "id": 7, "kind": "compact", "stream": "orders", "state": "quarantined", "partition_count": 3, "input_count": 4,
        "size_bytes": 5000, "record_count": 40, "age_ms": 60_000, "epoch": 3, "node_id": None, "attempt_count": 5,
        "wait_ms": 0, "error": "the catalog refuses",
    }  # fmt: skip
    retried: list[str] = []

    def answer_retry(route: Any) -> None:
        retried.append(route.request.method)
        task["state"] = "waiting"
        route.fulfill(json=task)

    page.route("**/api/admin/v1/compaction/tasks?*", lambda route: route.fulfill(json={"tasks": [task], "next": None}))
    page.route("**/api/admin/v1/compaction/tasks/7/retry", answer_retry)
    open_page(page, lake, "compaction")
    expect(row(page, "orders")).to_be_visible()
    expect(page.get_by_text("the catalog refuses")).to_be_visible()
    expect(page.get_by_text("bearlake compaction retry 7")).to_be_visible()
    expect(page.get_by_role("img", name="compact of orders quarantined")).to_be_visible()
    page.get_by_role("button", name="Try task 7 again").click()
    expect(page.get_by_role("button", name="Try task 7 again")).to_have_count(0)

    assert retried == ["POST"]


def test_tasks_of_one_kind_and_stream_share_a_lane_of_the_timeline_unless_they_overlap(page: Any, lake: Lake) -> None:
    """The first answer has two tasks of one stream at once; later ones have the next task of it, and one of another stream."""

    def task(number: int, stream: str, age_ms: int) -> dict[str, Any]:
        return {
            "id": number, "kind": "compact", "stream": stream, "state": "running", "partition_count": 1, "input_count": 1,
            "size_bytes": 10, "record_count": 1, "age_ms": age_ms, "epoch": 1, "node_id": 1, "attempt_count": 0,
            "wait_ms": 0, "error": None,
        }  # fmt: skip

    answers = [[task(1, "orders", 9_000), task(2, "orders", 8_000)]]
    later = [task(3, "orders", 0), task(4, "clicks", 0)]
    page.route(
        "**/api/admin/v1/compaction/tasks?*",
        lambda route: route.fulfill(json={"tasks": answers.pop() if answers else later, "next": None}),
    )
    open_page(page, lake, "compaction")
    expect(page.get_by_role("img", name="4 tasks in the last 2 minutes")).to_be_visible()

    assert page.locator(".timeline .lane").all_text_contents() == ["compact clicks", "compact orders", "compact orders"]
    assert page.locator(".timeline .bar").count() == 4


def test_names_with_markup_are_text(page: Any, lake: Lake) -> None:
    lake.write(
        "audit",
        {
            "key": {"type": "STRING", "data": "<img src=x>"},
            "value": {"type": "STRING", "data": "<script>alert(1)</script>"},
        },
    )
    open_page(page, lake, "streams/audit")

    expect(row(page, "<script>alert(1)</script>")).to_contain_text("<img src=x>")


def test_the_keyboard_alone_opens_a_stream_and_a_record(page: Any, lake: Lake) -> None:
    open_page(page, lake, "streams")
    expect(row(page, "audit")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).not_to_have_count(0)
    page.get_by_role("link", name="audit").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    button = row(page, "the river rises").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")

    expect(button).to_have_attribute("aria-expanded", "true")
    expect(page.locator("tr.whole")).to_contain_text("the river rises")


def test_a_thousand_streams_are_shown_in_steps_and_found_by_name(page: Any, lake: Lake) -> None:
    for first in range(0, 1_000, 500):
        names = [f"wide-{number:04}" for number in range(first, first + 500)]
        lake.admin("POST", "/v1/streams", {"streams": [{"name": name, "partition_count": 10} for name in names]})
    open_page(page, lake, "streams")
    expect(row(page, "wide-0001")).to_be_visible()
    assert page.get_by_role("row").count() <= 201
    page.get_by_role("button", name="Show more").click()
    expect(row(page, "wide-0300")).to_be_visible()
    page.get_by_label("Search").fill("wide-0999")

    expect(page.get_by_role("row")).to_have_count(2)
    expect(row(page, "wide-0999")).to_contain_text("10")


def test_the_overview_shows_the_time_of_appends_by_rest_too(page: Any, lake: Lake) -> None:
    open_page(page, lake, "")
    figure = page.locator("dl.figures > *").filter(has_text="Append, p99")
    expect(figure).to_be_visible()
    end_s = time.monotonic() + WAIT_S
    while "\N{EN DASH}" in figure.inner_text() and time.monotonic() < end_s:
        lake.write("audit", {"value": {"type": "STRING", "data": "the ice melts"}})

    assert re.search(r"Append, p99\s+[\d.]+ m?s", figure.inner_text())

"""Tables, SQL, access and settings in a real browser: what they show, and what they change."""

import re
from typing import Any

import pytest

from fixtures.compacted_folder import compact
from fixtures.console_lake import Lake, open_page, row
from fixtures.waiting import WAIT_S

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright (part of dev)")

from playwright.sync_api import expect

expect.set_options(timeout=WAIT_S * 1000)


def run(page: Any, statement: str) -> None:
    page.get_by_label("Statement").fill(statement)
    page.get_by_role("button", name="Run").click()


def test_a_table_shows_its_snapshots_files_and_dead_letters(page: Any, lake: Lake, keep_picture: Any) -> None:
    open_page(page, lake, "tables")
    expect(row(page, "streams.orders")).to_contain_text("0 s")
    page.get_by_role("link", name="streams.returns").click()
    expect(page.get_by_role("group", name="Snapshots, newest first").get_by_role("row")).to_have_count(2)
    expect(page.locator("dl.figures")).to_contain_text("Records2in files of the table")
    page.get_by_role("button", name="Count them").click()
    expect(page.get_by_role("group", name="Dead letters by reason").get_by_role("row")).to_have_count(2)
    keep_picture(page, "table-dead-letters-light")
    page.get_by_role("link", name="Show them with SQL").click()
    expect(page.get_by_label("Statement")).to_have_value(re.compile("_error is not null"))
    expect(page.get_by_role("group", name="Rows")).to_have_count(0)
    page.get_by_role("button", name="Run").click()

    expect(page.get_by_role("group", name="Rows")).to_contain_text("no order at all")


def test_a_stream_created_again_leads_to_its_own_table(page: Any, lake: Lake) -> None:
    lake.create("again", **{"table.freshness_ms": "100"})
    lake.write("again", {"value": {"type": "STRING", "data": "of the first stream"}})
    compact(lake.folder)
    lake.admin("DELETE", "/v1/streams?name=again")
    lake.create("again", **{"table.freshness_ms": "100"})
    lake.write("again", *({"value": {"type": "STRING", "data": "of the second stream"}} for _ in range(2)))
    compact(lake.folder)
    own = f"streams.again_{lake.admin('GET', '/v1/streams/again')['id'][:8]}"

    open_page(page, lake, "tables")
    expect(row(page, own).get_by_role("link", name="again", exact=True)).to_be_visible()
    open_page(page, lake, "streams/again")
    page.get_by_role("link", name=own).click()

    expect(page.get_by_role("heading", name=own)).to_be_visible()
    expect(page.get_by_role("link", name="again", exact=True)).to_be_visible()
    open_page(page, lake, "tables/streams/again")
    expect(page.locator("dl.figures")).to_contain_text("Records1in files of the table")
    expect(page.get_by_role("link", name="again", exact=True)).to_have_count(0)


def test_the_engine_is_loaded_once_when_the_page_opens_and_a_statement_waits_for_it(page: Any, lake: Lake) -> None:
    first = {"statement": "select 1", "is_live": False}
    asked: list[Any] = []
    held: list[Any] = []

    def hold_the_first(route: Any) -> None:
        asked.append(route.request.post_data_json)
        if len(asked) == 1:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/sql", hold_the_first)
    open_page(page, lake, "sql")
    open_page(page, lake, "tables")
    expect(row(page, "streams.orders")).to_be_visible()
    open_page(page, lake, "sql")
    run(page, "select count(*) as records from orders")
    expect(page.get_by_role("button", name="Running …")).to_be_visible()
    asked_before = list(asked)
    held[0].continue_()
    expect(page.get_by_role("group", name="Rows")).to_contain_text("40")

    assert asked_before == [first], "a person may have one place: the page does not compete with itself"
    assert asked == [first, {"statement": "select count(*) as records from orders", "is_live": True}]


def test_sql_shows_rows_as_a_table_and_a_plot_with_the_command_beside_it(
    page: Any, lake: Lake, keep_picture: Any
) -> None:
    open_page(page, lake, "sql")
    run(page, "select _partition_id as part, count(*) as records from orders group by 1 order by 1")
    expect(page.get_by_role("group", name="Rows").get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("img", name=re.compile("records by part: 3 points"))).to_be_visible()
    page.get_by_label("As", exact=True).select_option("bar")
    expect(page.locator(".plot rect")).to_have_count(3)
    expect(page.locator(".command code")).to_contain_text("bearlake sql 'select _partition_id")
    keep_picture(page, "sql-plot-light")
    page.emulate_media(color_scheme="dark")
    keep_picture(page, "sql-plot-dark")


def test_names_and_values_of_a_result_are_text_and_things_are_shown_as_bars(page: Any, lake: Lake) -> None:
    markup = "<img src=x onerror=alert(1)>"
    open_page(page, lake, "sql")
    run(
        page,
        f"""select '{markup}' as "{markup}", 1 as "<b>height</b>", ['{markup}'] as l union all select '\u202e\"', 2, null""",
    )
    rows = page.get_by_role("group", name="Rows")

    expect(rows).to_contain_text(markup)
    expect(rows).to_contain_text(f'["{markup}"]')
    expect(rows.get_by_role("columnheader").first).to_contain_text(markup)
    expect(page.locator(".plot")).to_contain_text("<b>height</b> by <img")
    expect(page.locator("main img, main b")).to_have_count(0)
    expect(page.locator(".plot rect")).to_have_count(2)


def test_sql_sees_a_record_at_once_unless_it_reads_compacted_records_only(page: Any, lake: Lake) -> None:
    lake.create("fresh")
    lake.write("fresh", {"value": {"type": "STRING", "data": "just now"}})
    open_page(page, lake, "sql")
    run(page, "select decode(_value) as value from fresh")
    expect(page.get_by_role("group", name="Rows")).to_contain_text("just now")
    page.get_by_role("checkbox").uncheck()
    page.get_by_label("Statement").press("Control+Enter")

    expect(page.get_by_text("The statement has no rows.")).to_be_visible()


def test_wrong_statements_say_what_is_wrong(page: Any, lake: Lake) -> None:
    open_page(page, lake, "sql")
    for statement, reason in (
        ("selec 1", "syntax error"),
        ("copy orders to '/tmp/x'", "expected one SELECT"),
        ("select * from read_text('/etc/passwd')", "cannot be a table"),
    ):
        run(page, statement)
        expect(page.get_by_role("alert")).to_contain_text(reason)


def test_what_a_principal_may_do_is_shown_with_its_rules(page: Any, lake: Lake, keep_picture: Any) -> None:
    open_page(page, lake, "access")
    page.get_by_role("button", name="Create a rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Principal").fill("User:alice")
    dialog.get_by_label("Name", exact=True).fill("ord")
    dialog.get_by_label("Name is").select_option("Prefixed")
    expect(dialog).to_contain_text(
        "bearlake access allow --principal User:alice --operation Read --resource Topic:ord --prefixed"
    )
    dialog.get_by_role("button", name="Create the rule").click()
    expect(row(page, "User:alice")).to_contain_text("Topic:ord …")
    page.get_by_label("Principal").fill("User:alice")
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("button", name="Show what is allowed").click()
    expect(page.get_by_text("1 rule for this principal.")).to_be_visible()
    keep_picture(page, "access-decision-light")
    page.get_by_role("button", name="Delete the rule of User:alice on Topic:ord").click()
    expect(dialog).to_contain_text("curl -X DELETE")
    dialog.get_by_role("button", name="Delete the rule").click()

    expect(page.get_by_text("There are no rules")).to_be_visible()


def test_settings_show_their_meaning_unit_and_source(page: Any, lake: Lake) -> None:
    open_page(page, lake, "settings")
    page.get_by_label("Search").fill("writer.linger_ms")
    expect(page.get_by_role("group", name="Settings").get_by_role("row").nth(1)).to_contain_text("default")
    page.get_by_label("Search").fill("")
    page.get_by_role("checkbox").check()

    expect(row(page, "metadata.url")).to_contain_text("sqlite")

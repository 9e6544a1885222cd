"""Hostile names and values do not reach the terminal as they are; progress is quiet on quick commands and without a terminal."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.cli.output import json_text, print_table, printable, say
from bearlake.cli.progress import Progress, duration_text, progress_text, shown_while
from bearlake.cli.record_format import Record, as_json, formatter

HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\r\nd\u202ee\u2028f\x7f\ud800"


@given(st.text())
def test_printable_text_has_no_character_that_a_terminal_obeys(text: str) -> None:
    assert printable(text + HOSTILE).isprintable()


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=("Cc",))))
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable("Bär 熊") == "Bär 熊"


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_is_safe_to_show_and_means_the_same(document: object) -> None:
    shown = json_text(document, indent=2)

    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == document
    assert json_text("\x7f") == r'"\u007f"'


def test_tables_and_errors_escape_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": HOSTILE, "configs": {HOSTILE: "1"}}], {"name": HOSTILE, "configs": "CONFIGS"})
    say(f"no stream {printable(HOSTILE)}", is_error=True)

    captured = capsys.readouterr()
    assert captured.out.replace("\n", "").isprintable()
    assert len(captured.out.splitlines()) == 2
    assert captured.err.replace("\n", "").isprintable()


def test_records_are_escaped_for_a_terminal_only() -> None:
    value = b"\x1b[31mred\n\t\xff\xc2\x9b"
    record = Record(stream="s", key=b"\x07k", value=value, headers=[("h\x1b", b"\x1b")])

    assert formatter("%k|%v|%h\\n")(record) == b"\x07k|" + value + b"|h\x1b=\x1b\n"
    assert formatter("%k|%v|%h\\n", escapes=True)(record) == (b"\\x07k|\\x1b[31mred\n\t\\xff\\x9b|h\\x1b=\\x1b\n")
    assert as_json(record).decode().removesuffix("\n").isprintable()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watch:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_progress_appears_after_two_seconds_with_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Watch()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress("produced", clock=clock)

    clock.now_s = 1.9
    progress.show(100, 0.1)
    assert terminal.getvalue() == ""
    clock.now_s = 4.0
    progress.show(1_200, 0.25)
    progress.show(1_300, 0.26)  # too soon after the last one
    assert terminal.getvalue() == "\rproduced 1,200 records, 300/s, 25 %, 12 s left"
    clock.now_s = 10.0
    progress.end(5_000)

    assert terminal.getvalue().endswith("\n")
    assert "\rproduced 5,000 records, 500/s" in terminal.getvalue()


def test_progress_is_silent_for_quick_commands_and_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Watch()
    monkeypatch.setattr(sys, "stderr", terminal)
    quick = Progress("produced", clock=clock)
    clock.now_s = 1.0
    quick.show(1)
    quick.end(1)
    assert terminal.getvalue() == ""

    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    piped = Progress("produced", clock=clock)
    clock.now_s = 100.0
    piped.show(1)
    piped.end(1)
    piped.clear()

    assert pipe.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


async def test_work_that_counts_nothing_returns_its_result_or_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 7

    assert await shown_while(work(None), "querying") == 7
    with pytest.raises(ValueError, match="no"):
        await shown_while(work(ValueError("no")), "querying")
    assert capsys.readouterr().err == ""


def test_waiting_shows_the_time_that_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Watch()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress("querying", clock=clock)

    clock.now_s = 3.0
    progress.wait(0.25)
    progress.clear()

    assert terminal.getvalue() == "\rquerying, 3 s, 25 %, 9 s left\r" + " " * 29 + "\r"


def test_progress_without_a_known_size_has_no_remaining_time() -> None:
    assert progress_text("consumed", "records", 10, 5.0, None) == "consumed 10 records, 2/s"

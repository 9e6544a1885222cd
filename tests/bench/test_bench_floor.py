"""The tables of `bench/floor.py`: which goals lie below the floor, and what is compared in which unit."""

from bench.cases import BY_NAME
from bench.figures import Run
from bench.floor import DEFAULT, EFFORT, FLOOR, OTHERS, floors_of, text_of
from bench.report import OURS, PEER, Result


def _run(cpu_s: float, **changes: object) -> Run:
    figures_of_run: dict[str, object] = {
        "seconds": 1.0, "requests": 10_000, "payload_bytes": 10**9, "mb_per_s": 1000.0, "p50_ms": 1.0, "p99_ms": 4.0,
        "p999_ms": 8.0, "client_cpu_s": 0.5, "server_cpu_s": cpu_s, "cpu_payload_bytes": 10**9, "cpu_requests": 10_000,
        "rss_bytes": 10**8, "other_cores": 0.0,
    }  # fmt: skip
    return Run(**figures_of_run | changes)  # type: ignore[arg-type]  # of several types


def _cells(text: str, title: str, table: int = 0) -> list[str]:
    line = [line for line in text.splitlines() if line.startswith(f"| {title}")][table]
    return [cell.strip() for cell in line.strip("|").split("|")]


def _text(name: str, **cpu_s: float) -> str:
    runs = {server.replace("_", " "): [_run(seconds, objects=500.0)] for server, seconds in cpu_s.items()}
    return text_of({"cores": "2"}, EFFORT, [Result(case=BY_NAME[name], runs=runs)])


def test_a_goal_below_the_floor_is_named_so() -> None:
    text = _text("produce-64k", kafka=2.0, bearlake=1.5, floor=1.25)

    assert _cells(text, "produce 64 KiB") == [
        "produce 64 KiB", "s/GB", "2.00", "1.50", "1.25", "0.62", "<= 0.5", "0.80 (below the floor)", "1.20", "0.75",
    ]  # fmt: skip


def test_a_goal_above_the_floor_shows_how_far_above() -> None:
    text = _text("produce-64k", kafka=2.0, bearlake=1.5, floor=0.5)

    assert _cells(text, "produce 64 KiB")[5:8] == ["0.25", "<= 0.5", "2.00"]


def test_small_requests_are_compared_by_the_request() -> None:
    text = _text("produce-16k", kafka=0.5, bearlake=0.2, floor=0.1)

    assert _cells(text, "produce 16 KiB")[1:5] == ["us/request", "50.0", "20.0", "10.0"]
    assert _cells(text, "produce 16 KiB", 1)[-2:] == ["20.0", "20.0"]  # requests per object


def test_a_second_floor_has_its_own_row() -> None:
    text = _text("low-load", kafka=0.5, bearlake=2.0, floor=0.8, another_thread=0.4)

    assert _cells(text, "low load", 2)[1:5] == ["another thread", "us/request", "40.0", "0.80"]


def test_a_case_without_all_servers_has_empty_cells() -> None:
    text = _text("produce-64k", floor=0.5)

    assert _cells(text, "produce 64 KiB")[2:] == ["", "", "0.50", "", "<= 0.5", "", "", ""]


def test_the_floor_of_each_case_keeps_the_promise_of_the_case() -> None:
    assert list(floors_of(BY_NAME["produce-lz4"])[0].words) == ["--decompress"]
    assert list(floors_of(BY_NAME["fetch-1m"])[0].words) == ["--keep-log"]
    assert list(floors_of(BY_NAME["produce-64k"])[0].words) == []
    assert {floors_of(case)[0].name for case in DEFAULT} == {FLOOR}
    names = [floor.name for case in DEFAULT for floor in OTHERS.get(case.name, ())]
    assert not {PEER, OURS, FLOOR} & set(names)

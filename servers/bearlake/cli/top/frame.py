"""Draws figures as lines of text: a pure function of the figures, their history and the size of the screen.

Every line fits the width; every name is printable. Colours are chosen here and removed by the caller when the output is no terminal.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bearlake.cli.output import printable, table_lines
from bearlake.cli.progress import duration_text

SPARKS = "▁▂▃▄▅▆▇█"
HISTORY_COUNT_MAX = 300
WIDTH_MIN = 40
HEIGHT_MIN = 8
NAME_WIDTH_MAX = 40
_LABEL_WIDTH = 12
_FIGURE_WIDTH = 34
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

GRAPHS = (
    ("append_bytes_per_s", "written"),
    ("fetch_bytes_per_s", "read"),
    ("requests_per_s", "requests"),
    ("object_requests_per_s", "object store"),
)


class History:
    """The last values of the graphs, oldest first."""

    def __init__(self) -> None:
        self._values = {key: deque[float](maxlen=HISTORY_COUNT_MAX) for key, _ in GRAPHS}

    def add(self, figures: Mapping[str, Any]) -> None:
        """Add the values of one interval."""
        for key, values in self._values.items():
            if key == "object_requests_per_s":
                values.append(sum(figures["object_store"]["requests_per_s"].values()))
            else:
                values.append(figures["totals"][key])

    def values(self, key: str) -> Sequence[float]:
        """Return the values of one graph."""
        return list(self._values[key])


def frame(figures: Mapping[str, Any], history: History, width: int, height: int) -> list[str]:
    """Return at most `height` lines of at most `width` characters (besides colours)."""
    width, height = max(width, WIDTH_MIN), max(height, HEIGHT_MIN)
    lines = [_bold(_cut(_title(figures), width)), *_graphs(figures, history, width), _cut(_summary(figures), width)]
    lines += [click.style(_cut(problem, width), fg="yellow") for problem in _problems(figures)]
    sections = [
        _section("SERVERS", _server_rows(figures), _SERVER_COLUMNS, width),
        _section("STREAMS", _stream_rows(figures), _STREAM_COLUMNS, width),
        _section("GROUPS", _group_rows(figures), _GROUP_COLUMNS, width),
    ]
    left = height - len(lines)
    for lines_of_section in _fitted([section for section in sections if section], left):
        lines += lines_of_section
    return lines[:height]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the newest `width` values as bars; the largest one is the highest bar."""
    shown = list(values)[-width:]
    largest = max(shown, default=0.0)
    if largest <= 0:
        return SPARKS[0] * len(shown)
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / largest * (len(SPARKS) - 1) + 0.5))] for value in shown)


def short(value: float | None, unit: str = "") -> str:
    """Return a number in at most four digits with its unit: `1.24 MB`; `-` for None."""
    if value is None:
        return "-"
    for size, prefix in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    number = f"{value:.3g}" if value != int(value) or abs(value) < 1000 else f"{int(value)}"
    return f"{number} {unit}".rstrip()


def _title(figures: Mapping[str, Any]) -> str:
    totals = figures["totals"]
    counts = [
        (totals["server_count"], "server"),
        (totals["connection_count"], "connection"),
        (len(figures["streams"]), "stream"),
    ]
    shown = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
    return f"bearlake top   {shown}   every {figures['interval_s']:.3g} s"


def _graphs(figures: Mapping[str, Any], history: History, width: int) -> list[str]:
    totals, store = figures["totals"], figures["object_store"]
    texts = {
        "append_bytes_per_s": f"{short(totals['append_bytes_per_s'], 'B')}/s  {short(totals['append_records_per_s'])} records/s",
        "fetch_bytes_per_s": f"{short(totals['fetch_bytes_per_s'], 'B')}/s",
        "requests_per_s": f"{short(totals['requests_per_s'])}/s  append p99 {_milliseconds(totals['append_p99_ms'])}",
        "object_requests_per_s": f"{short(sum(store['requests_per_s'].values()))}/s  {store['cost_per_day']:,.2f} a day",
    }
    room = max(0, width - _LABEL_WIDTH - _FIGURE_WIDTH - 2)
    lines = []
    for key, label in GRAPHS:
        text = f"{label:<{_LABEL_WIDTH}}  {texts[key]:<{_FIGURE_WIDTH}}"
        bars = sparkline(history.values(key), room) if room else ""
        lines.append(_cut(text, width - len(bars)) + click.style(bars, fg="cyan"))
    return lines


def _summary(figures: Mapping[str, Any]) -> str:
    totals, compaction = figures["totals"], figures["compaction"]
    parts = [f"put p99 {_milliseconds(totals['put_p99_ms'])}", f"commit p99 {_milliseconds(totals['commit_p99_ms'])}"]
    if compaction["freshness_ms"] is not None:
        waits = f"{short(compaction['backlog_records'])} records wait for tables"
        parts.append(
            f"{waits}, the oldest for {_age(compaction['freshness_ms'])}"
            if compaction["backlog_records"]
            else "tables are fresh"
        )
    return "; ".join(parts)


def _problems(figures: Mapping[str, Any]) -> list[str]:
    found = [printable(problem) for problem in figures["problems"]]
    if figures["compaction"]["quarantined_count"]:
        found.append(
            f"quarantined compaction tasks: {figures['compaction']['quarantined_count']} (bearlake compaction tasks shows why)"
        )
    found += [
        printable(f"server {server['name']} does not answer: {server['problem']}")
        for server in figures["servers"]
        if server["problem"]
    ]
    found += [f"there are more {name} than are read: these are the first" for name in figures["incomplete"]]
    return found


_SERVER_COLUMNS = {
    "name": "SERVER",
    "state": "STATE",
    "in": "WRITTEN/S",
    "out": "READ/S",
    "requests": "REQUESTS/S",
    "connections": "CONN",
    "cpu": "CPU",
    "memory": "MEMORY",
    "lag": "LOG LAG",
}
_STREAM_COLUMNS = {
    "name": "STREAM",
    "records": "RECORDS/S",
    "bytes": "BYTES/S",
    "total": "RECORDS",
    "size": "SIZE",
    "lag": "TABLE LAG",
    "freshness": "FRESHNESS",
}
_GROUP_COLUMNS = {"name": "GROUP", "lag": "LAG", "partitions": "PARTITIONS", "stream": "MOST IN"}


def _server_rows(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "name": _name(server["name"]),
            "state": server["state"],
            "in": short(server["append_bytes_per_s"], "B"),
            "out": short(server["fetch_bytes_per_s"], "B"),
            "requests": short(server["requests_per_s"]),
            "connections": short(server.get("connection_count")),
            "cpu": "-" if server["cpu_cores"] is None else f"{server['cpu_cores']:.0%}".replace("%", " %"),
            "memory": short(server.get("memory_bytes"), "B"),
            "lag": short(server.get("log_lag_entries")),
        }
        for server in figures["servers"]
    ]


def _stream_rows(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "name": _name(stream["stream"]),
            "records": short(stream["records_per_s"]),
            "bytes": short(stream["bytes_per_s"], "B"),
            "total": short(stream["record_count"]),
            "size": short(stream["size_bytes"], "B"),
            "lag": short(stream["table_lag_records"]),
            "freshness": _age(stream["freshness_ms"]) if stream["table_lag_records"] else "fresh",
        }
        for stream in figures["streams"]
    ]


def _group_rows(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    rows = []
    for group in figures["groups"]:
        most = max(group["streams"], key=lambda stream: stream["lag"], default=None)
        where = "" if most is None or not most["lag"] else f"{_name(most['stream'])} ({short(most['lag'])})"
        rows.append(
            {
                "name": _name(group["group"]),
                "lag": short(group["lag"]),
                "partitions": short(group["partition_count"]),
                "stream": where,
            }
        )
    return rows


def _section(title: str, rows: Sequence[Mapping[str, str]], columns: Mapping[str, str], width: int) -> list[str]:
    """Return the headings and rows of a table; empty without rows. The first column is a name, the others are aligned right."""
    if not rows:
        return []
    wide = {key: max(len(heading), *(len(row[key]) for row in rows)) for key, heading in columns.items()}
    first = next(iter(columns))
    aligned = [
        {key: text if key in (first, "state", "stream") else text.rjust(wide[key]) for key, text in row.items()}
        for row in rows
    ]
    headings = {
        key: heading if key in (first, "state", "stream") else heading.rjust(wide[key])
        for key, heading in columns.items()
    }
    heading, *lines = table_lines(aligned, headings)
    return ["", _bold(_cut(heading, width)), *(_cut(line, width) for line in lines)]


def _fitted(sections: Sequence[list[str]], height: int) -> list[list[str]]:
    """Cut tables so that all fit: each gets its share, and what one does not need goes to the next ones."""
    fitted = []
    left = height
    for index, section in enumerate(sections):
        share = left // (len(sections) - index)
        if index == len(sections) - 1:
            share = left
        rest = sum(min(len(other), height // len(sections)) for other in sections[index + 1 :])
        room = max(share, left - rest)
        if len(section) > room:
            hidden = len(section) - room + 1
            section = [*section[: max(room - 1, 0)], f"… {hidden} more"] if room > 2 else []
        fitted.append(section)
        left -= len(section)
    return fitted


def _name(text: str | None) -> str:
    return _cut(printable(text or "-"), NAME_WIDTH_MAX)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def _age(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else duration_text(milliseconds / 1000)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _bold(text: str) -> str:
    return click.style(text, bold=True)

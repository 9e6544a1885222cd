"""The request bill: its arithmetic, the access log, and one short measurement."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from bench.bearlake_server import COMMAND
from bench.request_bill import Shape, cost, tail_reads

from bench import request_bill, request_log

LINE = (
    "bearlake bench [24/November/2026:04:36:24 +0000] 127.0.0.1 bearlake VLCT4ABOY463HJSR s3_{} {} {} 200 - 0 100 2 2 - "
    "object_store/0.14.2 - abc= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bench Yes"
)


def test_each_server_of_other_zones_reads_an_object_at_the_tail_once() -> None:
    assert tail_reads(Shape(bytes_per_s=1, server_count=1)) == 0
    assert tail_reads(Shape(bytes_per_s=1, server_count=3)) == pytest.approx(2)
    assert tail_reads(Shape(bytes_per_s=1, server_count=30)) == pytest.approx(20)
    assert tail_reads(Shape(bytes_per_s=1, server_count=30, is_read_in_every_zone=False)) == 0


def test_prices_are_for_a_thousand_requests() -> None:
    assert cost({"PUT": 2000, "GET": 500, "HEAD": 7}, {"PUT": 0.5, "GET": 0.2}) == pytest.approx(1.1)


def test_the_access_log_counts_requests_by_folder_and_operation() -> None:
    lines = [
        "log starts 2026-11-24 04:36:22 +0000 UTC",
        LINE.format("PutObject", "bearlake/wal/a/b", "/bench/bearlake/wal/a/b"),
        LINE.format("PutObject", "bearlake/wal/a/c", "/bench/bearlake/wal/a/c"),
        LINE.format("UploadPart", "bearlake/table/x.parquet", "/bench/bearlake/table/x.parquet?partNumber=1"),
        LINE.format("HeadObject", "bearlake/table/x", "/bench/bearlake/table/x"),
        LINE.format("ListObjectsV2", "-", "/bench?list-type=2&prefix=bearlake%2Fwal%2F"),
        LINE.format("DeleteObjects", "-", "/bench?delete"),
    ]

    counts = request_log.count_requests(lines)

    assert counts == {
        "wal": Counter(PUT=2, LIST=1),
        "table": Counter(PUT=1, HEAD=1),
        "several": Counter(DELETE=1),
    }
    assert request_log.total(counts) == Counter(PUT=3, LIST=1, HEAD=1, DELETE=1)


def test_a_cost_column_needs_prices(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["request_bill.py", "simulate", "--gb-per-s", "0.1", "--servers", "1"]

    monkeypatch.setattr(sys, "argv", words)
    request_bill.main()
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*words, "--put-price", "1000"])
    request_bill.main()
    priced = capsys.readouterr().out

    assert "cost" not in plain
    assert "cost/GB" in priced


def test_a_server_on_s3_puts_an_object_for_each_commit(stores: None, bench_folder: Path) -> None:
    measured = request_log.measure(bench_folder, command=COMMAND, server_count=1, seconds=1, has_compaction=False)

    assert measured.payload_bytes > 0
    assert measured.requests["wal"] == Counter(PUT=measured.commits)

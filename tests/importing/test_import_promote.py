"""`bearlake import promote` as a process: names of streams and of Pulsar topics, for people and for programs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.cli_process import Cli
from fixtures.server_process import finished, started

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

NOTHING = "{}: nothing to do, it is not being imported\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("promoted")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Cli]:
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--no-compaction")
    with started(*words, ready_file=folder / "ready.json") as process:
        yield Cli(process)


def promote(folder: Path, *names: str) -> tuple[int, str, str]:
    done = finished("import", "promote", *names, "--data-dir", folder / "data")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_topic_of_pulsar_has_its_own_name(folder: Path, lake: Cli) -> None:
    lake("stream", "create", "acme..prod..orders")
    lake("stream", "create", "plain")

    found = promote(folder, "persistent://acme/prod/orders", "persistent://public/default/plain", "plain")

    assert found == (0, NOTHING.format("acme..prod..orders") + NOTHING.format("plain"), "")


def test_what_is_no_topic_of_pulsar_is_named(folder: Path, lake: Cli) -> None:
    code, out, error = promote(folder, "non-persistent://acme/prod/orders")

    assert (code, out) == (2, "")
    assert "expected a persistent:// topic" in error


def test_programs_get_json(folder: Path, lake: Cli) -> None:
    lake("stream", "create", "own")

    code, out, error = promote(folder, "own", "--json")

    assert (code, json.loads(out), error) == (0, [{"name": "own", "source": ""}], "")

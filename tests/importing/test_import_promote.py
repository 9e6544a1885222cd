"""`bearlake import promote`: several streams at once, by their names or those of Pulsar topics; all of them, or none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.cli_process import Cli
from fixtures.server_process import finished, started

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


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


def test_a_topic_of_pulsar_is_promoted_by_its_own_name(folder: Path, lake: Cli) -> None:
    lake("stream", "create", "acme..prod..orders")
    lake("stream", "create", "plain")

    found = promote(folder, "persistent://acme/prod/orders", "persistent://public/default/plain", "plain")

    assert found == (0, "acme..prod..orders: promoted\nplain: promoted\nplain: promoted\n", "")


def test_what_is_no_topic_of_pulsar_is_named(folder: Path, lake: Cli) -> None:
    code, out, error = promote(folder, "non-persistent://acme/prod/orders")

    assert (code, out) == (2, "")
    assert "expected a persistent:// topic" in error

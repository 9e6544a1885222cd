"""The commands of docs/pulsar.md and docs/pulsar-http.md work as they stand, with Pulsar's Python client and `pulsar-admin`."""

import json
import re
from pathlib import Path

import pytest

from fixtures import documentation
from fixtures.documented_machine import beside_up

pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

SUPER_USER = 'access: {super_users: ["User:ANONYMOUS"]}\n'
"""Permissions are for super users; the reader of these pages has not logged in."""


def test_pulsar(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(SUPER_USER)
    with beside_up(tmp_path, "--no-tour", "--config", settings) as machine:
        ran = machine.follow("docs/pulsar.md")

    program = next(done.output for done in ran.done if done.text.startswith("import pulsar"))
    assert [line.rpartition(" ")[0] for line in program.splitlines()] == [f"order {number}" for number in range(10)]
    assert ran.output("bearlake consume").splitlines() == [f"order {number}" for number in range(10)]
    assert any("b'hi'" in done.output.splitlines() for done in ran.done)
    if "curl" not in ran.missing:
        assert "persistent://public/default/greetings" in json.loads(ran.output("curl"))
    if "pulsar-admin" not in ran.missing:
        shown = next(done.output for done in ran.done if "topics permissions" in done.text)
        assert re.findall(r"alice|bob", shown) == ["alice", "bob"]
    ran.skip_if_incomplete()


def test_pulsar_http(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/pulsar-http.md")

    if "pulsar-admin" not in ran.missing:
        stats = next(done.output for done in ran.done if "partitioned-stats" in done.text)
        assert json.loads(stats)["metadata"]["partitions"] == 4
        assert "readers" in json.loads(stats)["subscriptions"]
    ran.skip_if_incomplete()


def test_the_settings_of_the_page_add_a_listener(tmp_path: Path) -> None:
    (block,) = [block for block in documentation.blocks("docs/pulsar.md") if block.kind == "yaml"]

    assert "name: TLS" in block.text  # test_docs_pulsar.py starts a server with it

"""The commands of docs/operations.md, docs/upgrade.md, docs/settings.md and docs/security.md work as they stand."""

import json
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from fixtures.documented_machine import Machine, beside_up
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def name_stores(machine: Machine) -> None:
    """Set the two URLs in the settings file, as the page says: those of a folder of the reader's."""
    path = machine.folder / "bearlake.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["metadata"]["url"] = f"sqlite:///{machine.folder}/shared.db"
    settings["object_store"]["url"] = (machine.folder / "objects").as_uri()
    settings["tables"]["catalog_url"] = f"sqlite:///{machine.folder}/catalog.db"
    path.write_text(yaml.safe_dump(settings))


def test_operations(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        hanging = Producer({"bootstrap.servers": machine.server.kafka, "transactional.id": "copier-1"})

        def begin_transaction() -> None:
            hanging.init_transactions(WAIT_S)
            hanging.begin_transaction()
            hanging.produce("copies", b"value")
            assert hanging.flush(WAIT_S) == 0

        prepare = {"bearlake serve kafka": lambda: name_stores(machine), "bearlake transaction list": begin_transaction}
        ran = machine.follow("docs/operations.md", prepare)

    assert "copier-1" in ran.output("bearlake transaction list")
    assert "ongoing" in ran.output("bearlake transaction describe").lower()


def test_upgrade(tmp_path: Path) -> None:
    """The page's two halves: before all processes stop, and after they run again on the same stores."""
    with beside_up(tmp_path, "--no-tour") as machine:
        machine.run("bearlake stream create kept")
        machine.run("echo value | bearlake produce kept")
        machine.follow("docs/upgrade.md")
    (tmp_path / "ready.json").unlink()
    with beside_up(tmp_path, "--no-tour") as machine:
        said = machine.run("bearlake consume kept --from-beginning --max-messages 1")
        machine.run("bearlake doctor --problems --timeout-ms 60000")

    assert (tmp_path / "before-upgrade" / "manifest.json").is_file()
    assert said.strip() == "value"


def test_settings(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/settings.md")

    assert yaml.safe_load(ran.output("bearlake config show"))["listeners"]["kafka"]["port"] == 9092
    assert json.loads(ran.output("bearlake config show --json"))


def test_security(tmp_path: Path) -> None:
    """Rules and quotas: the reader is a super user, and `settings.yaml` names the stores of the server."""
    settings = tmp_path / "settings.yaml"
    content = {
        "access": {"super_users": ["User:ANONYMOUS"]},
        "metadata": {"url": f"sqlite:///{tmp_path}/.bearlake/metadata.db"},
        "object_store": {"url": (tmp_path / ".bearlake" / "objects").as_uri()},
    }
    settings.write_text(yaml.safe_dump(content))
    (tmp_path / "root.properties").write_text("")
    with beside_up(tmp_path, "--no-tour", "--config", settings) as machine:
        ran = machine.follow("docs/security.md")

    assert (tmp_path / "server.pem").read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert (tmp_path / "token").read_text().count(".") == 2
    if "kafka-acls.sh" not in ran.missing:
        assert "User:alice" in ran.output("kafka-acls.sh")
    ran.skip_if_incomplete()

"""The matrix of `docs/pulsar-clients.md` lists exactly what the tests show."""

import re
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

import pytest

from clients.pulsar_features import FEATURES, table

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "pulsar-clients.md"
PYTHON = ("protocols/pulsar/test_pulsar_python.py", "clients/test_pulsar_python_client.py")


def test_every_python_test_of_a_feature_exists() -> None:
    sources = "".join((TESTS / name).read_text(encoding="utf-8") for name in PYTHON)
    defined = set(re.findall(r"^(?:async )?def (test_\w+)\(", sources, re.MULTILINE))

    assert {name for row in FEATURES for name in row.python} <= defined


def test_every_step_of_a_feature_exists_in_its_program() -> None:
    java = (TESTS / "clients" / "pulsar_java" / "PulsarSteps.java").read_text(encoding="utf-8")
    go = (TESTS / "clients" / "pulsar_go" / "main.go").read_text(encoding="utf-8")

    assert {step for row in FEATURES for step in row.java} == set(re.findall(r'steps\.put\("([\w-]+)"', java))
    assert {step for row in FEATURES for step in row.go} == set(re.findall(r'\{"([\w-]+)", \w+\}', go))


def test_the_page_has_the_table() -> None:
    python = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    assert python is not None
    pom = ElementTree.parse(TESTS / "clients" / "pulsar_java" / "pom.xml").getroot()
    java = pom.findtext("./{*}properties/{*}pulsar.version")
    go = re.search(r"pulsar-client-go v(\S+)", (TESTS / "clients" / "pulsar_go" / "go.mod").read_text(encoding="utf-8"))
    assert java is not None
    assert go is not None
    page = PAGE.read_text(encoding="utf-8")
    tested = re.search(r"^\| \| Python (\S+) ", page, re.MULTILINE)
    assert tested is not None

    assert table(tested[1], java, go[1]) in page
    assert version("pulsar-client").split(".")[0] == tested[1].split(".")[0]

"""Fixtures of the cluster tests. Each module installs its own release into an empty namespace; its tests build on each other.

Figures for docs/kubernetes-report.md are properties of the test suite in the JUnit file; `report.py` renders them.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fixtures.kubernetes import Cluster, find_cluster
from kube.release import clean_namespace
from kube.stores import start_stores

Note = Callable[[str, object], None]


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster; skips without one."""
    return find_cluster()


@pytest.fixture(scope="module")
def empty(cluster: Cluster) -> Cluster:
    """The cluster without a release and without Streams."""
    clean_namespace(cluster)
    return cluster


@pytest.fixture(scope="module")
def stores(empty: Cluster) -> Cluster:
    """The cluster with empty stores that do not belong to the release."""
    start_stores(empty)
    return empty


@pytest.fixture(scope="session")
def note(record_testsuite_property: Any) -> Note:
    """Add a figure, or a mapping of figures, to the report."""

    def put(name: str, value: object) -> None:
        record_testsuite_property(name, json.dumps(value))

    return put

"""Streams and Compactors in a real API server: examples, validation messages, defaults and printed columns.

Needs no nodes and no operator: the rules are those of the CRDs.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bearlake_operator.errors import Conflict
from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.reconcile.claims import FINALIZER
from fixtures.control_plane import ADMIN_TOKEN, ControlPlane, control_plane
from fixtures.kubernetes import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = sorted(
    path for path in (REPOSITORY / "charts/bearlake/examples").glob("*.yaml") if not path.stem.endswith("-values")
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our CRDs."""
    with control_plane(tmp_path_factory.mktemp("plane")) as found:
        found.kubectl("apply", "--server-side", "-f", str(REPOSITORY / "crds"))
        found.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
        yield found


@pytest.fixture
async def kube(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """The operator's client, as an administrator."""
    token_file = tmp_path / "token"
    token_file.write_text(ADMIN_TOKEN)
    found = KubeClient(
        ClientConfig(server=plane.url, namespace="default", ca_file=str(plane.authority), token_file=token_file)
    )
    yield found
    await found.close()


def stream(resource: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Stream", "metadata": {"name": resource}, "spec": spec}


def compactor(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "bearlake.dev/v1alpha1", "kind": "Compactor", "metadata": {"name": "main"}, "spec": spec}


def answer(plane: ControlPlane, resource: dict[str, Any], *words: str) -> str:
    """The output of `kubectl apply`."""
    return plane.kubectl("apply", "--validate=strict", *words, "-f", "-", given=json.dumps(resource), is_checked=False)


NIGHT = {"start": "22:00", "end": "05:00", "replicas": 4}


@pytest.mark.parametrize(
    ("resource", "problem"),
    [
        (stream("s", partition=3), 'unknown field "spec.partition"'),
        (stream("s", partitions=0), "should be greater than or equal to 1"),
        (stream("s", protocols=["amqp"]), "Unsupported value"),
        (stream("s", protocols=["kafka", "kafka"]), "Duplicate value"),
        (stream("s", name=".."), "'.' and '..'"),
        (stream("s", retention={"time": "7 days"}), "should match"),
        (stream("s", configs={"retention.ms": "5"}), "configs must not set"),
        (stream("s", configs={"table.on_delete": "drop"}), "configs must not set"),
        (stream("s", access=[{"principal": "Server:admin-api", "operations": ["Read"]}]), "should match"),
        (stream("s", access=[{"principal": "User:alice"}]), "operations: Required value"),
        (stream("s", access=[{"principal": "User:alice", "operations": ["ClusterAction"]}]), "Unsupported value"),
        (stream("s", access=[{"principal": "User:alice", "operations": ["All", "Read"]}]), "All includes every other"),
        (stream("s", access=[{"principal": "User:a", "operations": ["Read"], "host": "10.0.0.0/8"}]), "should match"),
        (compactor(replicas=1, autoscaling={"maxReplicas": 2}), "replicas or autoscaling"),
        (compactor(schedule=[NIGHT], autoscaling={"maxReplicas": 2}), "schedule or autoscaling"),
        (
            compactor(autoscaling={"minReplicas": 3, "maxReplicas": 2}),
            "minReplicas must not",
        ),
        (compactor(schedule=[{**NIGHT, "end": "24:00"}]), "should match"),
        (compactor(spark={"executors": {"count": 2}}), "executors require"),
        (compactor(spark={"master": "local[2]", "executors": {}}), "executors require"),
        (
            compactor(streams={"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "In and NotIn require values",
        ),
    ],
)
def test_invalid_resources_are_rejected_with_a_message(
    plane: ControlPlane, resource: dict[str, Any], problem: str
) -> None:
    assert problem in answer(plane, resource, "--dry-run=server")


def test_immutable_fields_of_a_stream_cannot_change(plane: ControlPlane) -> None:
    first = stream("fixed", name="orders", dataLayer="a", partitions=3)
    plane.apply(first)

    assert "name is immutable" in answer(plane, stream("fixed", name="other", dataLayer="a", partitions=3))
    assert "name is immutable" in answer(plane, stream("fixed", dataLayer="a", partitions=3))
    assert "dataLayer is immutable" in answer(plane, stream("fixed", name="orders", dataLayer="b", partitions=3))
    assert "can only grow" in answer(plane, stream("fixed", name="orders", dataLayer="a", partitions=2))
    assert "configured" in answer(plane, stream("fixed", name="orders", dataLayer="a", partitions=4))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_accepted(plane: ControlPlane, path: Any) -> None:
    plane.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(path))


def test_a_new_resource_has_the_default_condition(plane: ControlPlane) -> None:
    plane.apply(stream("unseen"))
    header, row = plane.kubectl("get", "streams", "unseen").splitlines()

    assert header.split() == ["NAME", "STREAM", "PARTITIONS", "PROTOCOLS", "RECORDS", "FRESHNESS", "READY", "AGE"]
    assert row.split()[1] == "Unknown"
    (condition,) = plane.get("stream", "unseen")["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Ready", "Pending")


def test_a_compactor_has_the_scale_subresource(plane: ControlPlane) -> None:
    plane.apply(compactor(replicas=1))

    plane.kubectl("scale", "compactor/main", "--replicas=3")

    assert plane.get("compactor", "main")["spec"]["replicas"] == 3


def test_kubectl_explain_documents_fields(plane: ControlPlane) -> None:
    protocols = " ".join(plane.kubectl("explain", "stream.spec.protocols").split())
    table = " ".join(plane.kubectl("explain", "stream.spec.table").split())

    assert "access control" in protocols
    assert "partition spec" in table


def test_the_charts_crds_are_accepted(plane: ControlPlane) -> None:
    text = plane.helm(
        *("template", "bl", str(REPOSITORY / "charts/bearlake"), "-s", "templates/crds.yaml"),
        *("--set", "quickstart.enabled=true"),
    )

    for resource in yaml.safe_load_all(text):
        if resource:
            plane.kubectl(
                "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", given=json.dumps(resource)
            )


def test_a_namespace_has_one_release(plane: ControlPlane) -> None:
    chart = str(REPOSITORY / "charts/bearlake")
    values = ("--set", "quickstart.enabled=true,crds.install=false", "--dry-run=server")
    operator = plane.helm("template", "first", chart, "-s", "templates/operator.yaml", *values[:2])
    plane.kubectl("apply", "-f", "-", given=operator)

    assert "release first" in plane.helm("install", "other", chart, *values, is_checked=False)
    assert "STATUS: pending-install" in plane.helm("install", "first", chart, "-n", "kube-public", *values)


async def test_the_same_status_is_not_written_onto_an_older_version(plane: ControlPlane, kube: KubeClient) -> None:
    """The operator confirms in this way that it knows the present version of a Stream, before it changes access rules."""
    plane.apply(stream("versioned"))
    made = await kube.get("Stream", "default", "versioned")
    assert made is not None
    known = await kube.apply_status(made, {"recordCount": 1}, is_exact=True)
    assert known is not None

    plane.kubectl("label", "stream/versioned", "team=shop")

    with pytest.raises(Conflict):
        await kube.apply_status(known, {"recordCount": 1}, is_exact=True)


async def test_a_finalizer_that_another_client_has_set_is_removed(plane: ControlPlane, kube: KubeClient) -> None:
    """As after a backup is restored. Server-side apply would leave it."""
    made = stream("restored")
    made["metadata"]["finalizers"] = [FINALIZER]
    plane.apply(made)
    known = await kube.get("Stream", "default", "restored")
    assert known is not None
    plane.kubectl("label", "stream/restored", "team=shop")

    with pytest.raises(Conflict):
        await kube.set_finalizers(known, [])
    present = await kube.get("Stream", "default", "restored")
    assert present is not None
    assert present["metadata"]["finalizers"] == [FINALIZER]
    await kube.set_finalizers(present, [])

    assert "finalizers" not in plane.get("stream", "restored")["metadata"]

"""PostgreSQL and an object store that do not belong to the release: they outlive it, as a user's own do."""

from pathlib import Path

from fixtures.kubernetes import Cluster
from kube.release import NAMESPACE, empty_namespace

STORES = "lake-stores"
MANIFESTS = Path(__file__).parent / "stores.yaml"
READY_S = 180
PASSWORD = "only-for-tests"


def start_stores(cluster: Cluster) -> None:
    """Empty stores, and in both namespaces the Secret that says how to reach them."""
    empty_namespace(cluster, STORES)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "stores"},
        "stringData": {
            "password": PASSWORD,
            "metadata-url": f"postgresql://bearlake:{PASSWORD}@postgresql.{STORES}.svc:5432/bearlake",
            "access-key-id": "bearlake",
            "secret-access-key": PASSWORD,
        },
    }
    for namespace in (STORES, NAMESPACE):
        cluster.apply({**secret, "metadata": {"name": "stores", "namespace": namespace}})
    cluster.kubectl("-n", STORES, "apply", "-f", str(MANIFESTS))
    for name in ("postgresql", "objects"):
        cluster.kubectl("-n", STORES, "rollout", "status", f"deployment/{name}", f"--timeout={READY_S}s")


def stores_node(cluster: Cluster) -> str:
    """The node that both run on."""
    (node,) = {pod["spec"]["nodeName"] for pod in cluster.listed("pods", STORES)}
    return str(node)

"""PostgreSQL and an object store that do not belong to the release, and survive it like a user's stores."""

from pathlib import Path

from fixtures.kubernetes import Cluster
from kube.release import NAMESPACE, empty_namespace

STORES = "lake-stores"
MANIFESTS = Path(__file__).parent / "stores.yaml"
READY_S = 180
PASSWORD = "only-for-tests"


def start_stores(cluster: Cluster) -> None:
    """Create empty stores, and in both namespaces the Secret with their addresses and credentials."""
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
    """The node on which both run."""
    (node,) = {pod["spec"]["nodeName"] for pod in cluster.listed("pods", STORES)}
    return str(node)

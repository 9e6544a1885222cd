"""The operator's own Deployment: it owns every object that the operator creates, so that these are deleted with it.

A namespace has one operator. An operator finds its objects by a label only, and would delete those of another operator.
"""

from bearlake_operator.controllers.apply import CHILD_KINDS
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.errors import Conflict, Invalid
from bearlake_operator.kube import KubeClient, Resource


async def find_owner(kube: KubeClient, name: str) -> Resource:
    """The operator's Deployment. Raises `Unavailable`, `Invalid`."""
    owner = await kube.get("Deployment", kube.namespace, name)
    if owner is None:
        raise Invalid(f"the operator's own Deployment {name} does not exist in the namespace {kube.namespace}")
    return owner


async def check_sole_operator(kube: KubeClient, cache: ResourceCache, owner: Resource) -> None:
    """Check that no object in the namespace is owned by the Deployment of another operator.

    Raises `Conflict` if one is and that Deployment still exists; `Unavailable`, `Invalid`.
    """
    other_owners = {
        (reference["name"], reference["uid"])
        for kind in CHILD_KINDS
        for resource in cache.list(kind)
        for reference in resource["metadata"].get("ownerReferences", ())
        if reference["kind"] == "Deployment" and reference["uid"] != owner["metadata"]["uid"]
    }
    for name, uid in sorted(other_owners):
        other = await kube.get("Deployment", kube.namespace, name)
        if other is not None and other["metadata"]["uid"] == uid:
            raise Conflict(
                f"the namespace {kube.namespace} already has an operator, {name}: install this release into another namespace"
            )

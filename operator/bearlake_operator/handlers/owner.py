"""The operator's own Deployment: whatever the operator makes is owned by it, and goes with it.

A namespace has one operator: objects are found by their label alone, and what one operator does not want it removes.
"""

from bearlake_operator.errors import Conflict, Invalid
from bearlake_operator.handlers.apply import CHILD_KINDS
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Kube, Resource


async def find(kube: Kube, name: str) -> Resource:
    """The operator's Deployment. Raises `Unavailable`, `Invalid`."""
    owner = await kube.get("Deployment", kube.namespace, name)
    if owner is None:
        raise Invalid(f"there is no Deployment {name} in {kube.namespace}, which should be this operator's own")
    return owner


async def check(kube: Kube, world: World, owner: Resource) -> None:
    """Raises `Conflict` when objects are another operator's, whose Deployment is still there; `Unavailable`, `Invalid`."""
    names = {
        (reference["name"], reference["uid"])
        for kind in CHILD_KINDS
        for resource in world.of(kind)
        for reference in resource["metadata"].get("ownerReferences", ())
        if reference["kind"] == "Deployment" and reference["uid"] != owner["metadata"]["uid"]
    }
    for name, uid in sorted(names):
        other = await kube.get("Deployment", kube.namespace, name)
        if other is not None and other["metadata"]["uid"] == uid:
            raise Conflict(
                f"the namespace {kube.namespace} is that of the operator {name}: install this release into a namespace of its own"
            )

"""Which tiers must exist: one for each protocol that some Stream of a data layer asks for, and the Iceberg REST catalog if enabled."""

from collections.abc import Iterable, Mapping

from bearlake_operator.api import StreamSpec
from bearlake_operator.reconcile.claims import Claim
from bearlake_operator.settings import CATALOG, SERVER_TIERS, Settings


def required_tiers(
    settings: Settings, claims: Iterable[Claim], terminating: Iterable[StreamSpec] = ()
) -> Mapping[str, tuple[str, ...]]:
    """The required tiers of servers of each data layer, in the order of `SERVER_TIERS`.

    A terminating Stream requires its protocols until it is gone.
    """
    required: dict[str, set[str]] = {
        name: {CATALOG} if layer.tier(CATALOG).enabled else set() for name, layer in settings.data_layers.items()
    }
    for spec in (*(claim.spec for claim in claims if claim.is_owner), *terminating):
        if spec.data_layer in required:
            required[spec.data_layer] |= set(spec.protocols)
    return {name: tuple(tier for tier in SERVER_TIERS if tier in found) for name, found in required.items()}

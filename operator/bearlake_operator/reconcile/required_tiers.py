"""Which tiers must exist: one for each protocol that some Stream of a data layer asks for."""

from collections.abc import Iterable, Mapping

from bearlake_operator.api import StreamSpec
from bearlake_operator.reconcile.claims import Claim
from bearlake_operator.settings import PROTOCOLS, Settings


def required_tiers(
    settings: Settings, claims: Iterable[Claim], terminating: Iterable[StreamSpec] = ()
) -> Mapping[str, tuple[str, ...]]:
    """The required protocols of each data layer, in the order of `PROTOCOLS`.

    A terminating Stream requires its protocols until it is gone.
    """
    required: dict[str, set[str]] = {name: set() for name in settings.data_layers}
    for spec in (*(claim.spec for claim in claims if claim.is_owner), *terminating):
        if spec.data_layer in required:
            required[spec.data_layer] |= set(spec.protocols)
    return {name: tuple(protocol for protocol in PROTOCOLS if protocol in found) for name, found in required.items()}

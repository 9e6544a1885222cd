"""The folders outside of the object store in which tables that are no stream's may lie (`catalog.warehouse.foreign_roots`)."""

from collections.abc import Sequence

from bearlake.errors import Invalid
from bearlake.table.io import Locations


def check_roots(roots: Sequence[str], *store_urls: str) -> None:
    """Refuse roots that contain the object store, or are a part of it: metadata files there would be ours.

    Raises:
        Invalid: the message names the setting.
    """
    for root in roots:
        for url in store_urls:
            if Locations(root).key_or_none(f"{url}/") is not None or Locations(url).key_or_none(f"{root}/") is not None:
                raise Invalid(
                    f"catalog.warehouse.foreign_roots: {root} and the object store must not contain each other"
                )

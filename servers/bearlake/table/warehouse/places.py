"""Folders of tables that are no stream's: each has its own, so that nobody reads or writes the metadata of another table by its place.

The folders of two tables that are created at the same moment are not compared. Blocks: asks the catalog.
"""

import re
import uuid
from collections.abc import Sequence
from typing import Final

from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.io import Locations
from bearlake.table.warehouse import guard
from bearlake.table.warehouse.model import Name, forbidden

_PART_LENGTH_MAX: Final = 200
"""Characters of a name in a folder's name: object keys are ASCII, and a part of them has at most 255 characters."""


class Places:
    """Folders in our object store, and in `roots`."""

    def __init__(self, locations: Locations, roots: Sequence[Locations]) -> None:
        self._locations = locations
        self._roots = roots

    def place_for(self, catalog: ConditionalCatalog, name: Name, asked: object) -> str:
        """Return the location of a new table: the one that its engine asks for, or a new folder. Raises as `check_free`."""
        if asked:
            self.check_free(catalog, str(asked))
            return str(asked).rstrip("/")
        parts = [re.sub(r"[^A-Za-z0-9_-]", "_", part)[:_PART_LENGTH_MAX] for part in name]
        return self._locations.location(f"{guard.FOLDER}{'/'.join(parts)}-{uuid.uuid4().hex[:8]}")

    def check_free(self, catalog: ConditionalCatalog, location: str) -> None:
        """Raise `Refused` or `Outside` for a place where no table may lie, or where another one lies."""
        guard.check_folder(location, self._locations, self._roots)
        found = [("", self._locations.key_or_none(location))]
        found += [(root.base, root.key_or_none(location)) for root in self._roots]
        if any(key is not None and catalog.is_place_taken(base, key) for base, key in found):
            raise forbidden(f"another table lies in {location}, or around it")

"""Folders of tables that are no stream's: each has its own, so that nobody reads or writes the metadata of another table by its place.

Keys for a table are good for its folder, also after the table was dropped, and before a staged one was created. So no client chooses a
folder around a default one (decision 288). The folders of two tables that are created at the same moment are not compared. Blocks: asks
the catalog.
"""

import re
import uuid
from collections.abc import Sequence
from typing import Final

from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.io import Locations
from bearlake.table.warehouse import guard
from bearlake.table.warehouse.model import Name, forbidden

DEFAULT_FOLDER: Final = f"{guard.FOLDER}default/"
"""Prefix of the keys of default folders. Each lies directly in it, so none contains another one."""
_NAME_LENGTH_MAX: Final = 240
"""Characters of a table's name in a folder's name: object keys are ASCII, and a part of them has at most 255 characters."""


class Places:
    """Folders in our object store, and in `roots`."""

    def __init__(self, locations: Locations, roots: Sequence[Locations]) -> None:
        self._locations = locations
        self._roots = roots

    def place_for(self, catalog: ConditionalCatalog, name: Name, asked: object) -> str:
        """Return the location of a new table: the one that its engine asks for, or a new default folder. Raises as `check_free`."""
        if asked:
            self.check_free(catalog, str(asked))
            return str(asked).rstrip("/")
        text = ".".join(re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in name)[-_NAME_LENGTH_MAX:]
        return self._locations.location(f"{DEFAULT_FOLDER}{text}-{uuid.uuid4().hex[:8]}")

    def check_free(self, catalog: ConditionalCatalog, location: str) -> None:
        """Raise `Refused` or `Outside` for a place where no table may lie, or where another one lies."""
        guard.check_folder(location, self._locations, self._roots)
        own = self._locations.key_or_none(location)
        if own is not None and not _is_beside_default_folders(own):
            raise forbidden(f"default folders of tables lie in {location}, or it lies in one of them")
        found = [("", own)]
        found += [(root.base, root.key_or_none(location)) for root in self._roots]
        if any(key is not None and catalog.is_place_taken(base, key) for base, key in found):
            raise forbidden(f"another table lies in {location}, or around it")


def _is_beside_default_folders(key: str) -> bool:
    """Return whether a folder neither contains a default folder nor lies in one; it may be one."""
    folder = f"{key.strip('/')}/"
    if DEFAULT_FOLDER.startswith(folder):
        return False
    return not folder.startswith(DEFAULT_FOLDER) or folder.removeprefix(DEFAULT_FOLDER).count("/") == 1

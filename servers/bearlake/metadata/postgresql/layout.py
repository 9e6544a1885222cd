"""The layout as files: `schema/` makes the tables, `functions/` the stored functions, `migrations/` changes the tables of older stores.

- `schema/*.sql` are the tables of an empty store, with their indexes and triggers, by noun.
- `functions/*.sql` are the functions, one rule per file. They are replaced whole whenever a store comes to this layout: `former.sql` drops
  those that this layout has no more, or whose signature changed; then every file runs (`create or replace`).
- `migrations/NNNN_name.sql` takes the tables of a store below layout NNNN to layout NNNN. `schema/` already has its effect.

Each change of these files gives the layout the next number (`VERSION`). Servers of the layout before run on during an upgrade, so a
function that they call keeps its signature and its promise; a change of either gets a new name (decision 107).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

VERSION = 37
"""The layout that these files make."""

OLDEST = 26
"""The oldest layout that a store may have to be upgraded. Its tables are those of layout 27, which replaced the functions only."""

NEEDED_BY_TABLES = ("now_ms", "check_session", "note_former_producers", "number_claim", "count_commit")
"""The files of functions that views and triggers name. They run before `schema/`."""

FORMER = "former"
"""The file that drops functions. It runs before all other functions."""

_TABLE = re.compile(r"^create table bearlake\.(\w+)", re.MULTILINE)
_SEQUENCE = re.compile(r"^create sequence bearlake\.(\w+)", re.MULTILINE)


class Migration(NamedTuple):
    """A change of the tables of stores below layout `version`."""

    version: int
    name: str
    script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a program knows of the layout: scripts in the order in which they run."""

    version: int
    oldest: int
    tables: Sequence[str]
    """Make the tables of an empty store."""
    functions: Sequence[str]
    """Replace all functions."""
    migrations: Sequence[Migration] = ()
    """Change the tables of older stores, oldest first."""

    @property
    def table_names(self) -> frozenset[str]:
        """The tables of a store. Its schema may have others: a role named as the schema makes its tables there, such as the catalog's."""
        return frozenset(name for script in self.tables for name in _TABLE.findall(script))

    @property
    def sequence_names(self) -> frozenset[str]:
        """The sequences of a store that no column owns."""
        return frozenset(name for script in self.tables for name in _SEQUENCE.findall(script))

    def missing(self, present: int) -> list[Migration]:
        """Return the migrations of a store of layout `present`."""
        return [migration for migration in self.migrations if migration.version > present]


def available() -> Layout:
    """Return the layout of this program."""
    folder = resources.files("bearlake.metadata.postgresql")
    functions = _scripts(folder.joinpath("functions"))
    first = [functions[name] for name in NEEDED_BY_TABLES]
    former = functions.pop(FORMER)
    return Layout(
        version=VERSION,
        oldest=OLDEST,
        tables=[*first, *_scripts(folder.joinpath("schema")).values()],
        functions=[former, *functions.values()],
        migrations=[
            Migration(int(name[:4]), name, script) for name, script in _scripts(folder.joinpath("migrations")).items()
        ],
    )


def _scripts(folder: Traversable) -> dict[str, str]:
    """Return the files of a folder that may be absent, by name without `.sql`."""
    if not folder.is_dir():
        return {}
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in files}

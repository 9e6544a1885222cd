"""When a store takes a write of a cursor that may arrive late (DESIGN.md, I12; decision 102). Pure: SQLite and the model run it.

Each partition counts its deletions. A write names the count that its caller read. If the count has grown since, the store has told
somebody something else, and refuses the write.

    create, no cursor there   takes effect if its count is the partition's; the count becomes the cursor's generation
    create, finds the cursor  adds one to the count: its caller was told that the cursor exists, so no deletion from before may follow
    delete                    takes effect if its count is the partition's; adds one. It removes only the generations that it names
    save                      takes effect if it names the cursor's generation, and a larger revision than the stored one

A deleted cursor has a generation below the count, and a new one takes the count. So no two cursors of one name have the same generation.
`postgresql/migrations/0026_cursor_generations.sql` has the same rules in SQL; one conformance suite holds both.
"""

from enum import Enum


class Creation(Enum):
    """What becomes of a create."""

    FOUND = "found"
    """The cursor exists: it stays as it is, and the partition's count grows by one."""
    MADE = "made"
    """The cursor is made; its generation is the count."""
    REFUSED = "refused"
    """Cursors of the partition were deleted, or found, since the caller read the count."""


def creation(*, exists: bool, count: int, after: int) -> Creation:
    """Decide a create whose caller read the count `after`; `count` is the partition's."""
    if exists:
        return Creation.FOUND
    return Creation.MADE if count == after else Creation.REFUSED


def may_delete(*, count: int, after: int) -> bool:
    """Whether a deletion takes effect whose caller read the count `after`; `count` is the partition's."""
    return count == after


def is_deleted(*, generation: int, named: int) -> bool:
    """Whether a deletion that takes effect and names the generation `named` removes a cursor of `generation`."""
    return generation == named


def may_save(*, generation: int, revision: int, named: int, new: int) -> bool:
    """Whether a save of revision `new` that names the generation `named` moves a cursor."""
    return generation == named and revision < new


def is_saved(*, generation: int, revision: int, named: int, new: int) -> bool:
    """Whether the store has what a save says: this save moved the cursor, or the same save did before and is repeated."""
    return generation == named and revision == new

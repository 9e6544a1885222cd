"""Rules for late writes of cursors (DESIGN.md, I12; decision 102). Pure: SQLite and the model run them.

Each partition counts its deletions. A write names the count that its caller read. If the count has grown since, the store has given
another caller an answer that this write could contradict, so the store refuses the write.

    create, no cursor there   takes effect if its count is the partition's; the count becomes the cursor's generation
    create, finds the cursor  adds one to the count: its caller learns that the cursor exists, so no earlier deletion may take effect
    delete                    takes effect if its count is the partition's; adds one. It removes only the generations that it names
    save                      takes effect if it names the cursor's generation, and a larger revision than the stored one

A deleted cursor has a generation below the count, and a new cursor takes the count. So no two cursors of one name have the same
generation. `postgresql/functions/create_cursor.sql`, `save_cursors.sql` and `delete_cursors.sql` are the same rules in SQL; one conformance
suite checks both.
"""

from enum import Enum


class Creation(Enum):
    """The result of a create."""

    FOUND = "found"
    """The cursor exists: it is not changed, and the partition's count grows by one."""
    MADE = "made"
    """The cursor is created; its generation is the count."""
    REFUSED = "refused"
    """Cursors of the partition were deleted, or found, since the caller read the count."""


def creation(*, exists: bool, count: int, after: int) -> Creation:
    """Decide a create whose caller read the count `after`; `count` is the partition's count now."""
    if exists:
        return Creation.FOUND
    return Creation.MADE if count == after else Creation.REFUSED


def may_delete(*, count: int, after: int) -> bool:
    """Return whether a deletion whose caller read the count `after` takes effect; `count` is the partition's count now."""
    return count == after


def is_deleted(*, generation: int, named: int) -> bool:
    """Return whether a deletion that names the generation `named` removes a cursor of `generation`, if the deletion takes effect."""
    return generation == named


def may_save(*, generation: int, revision: int, named: int, new: int) -> bool:
    """Return whether a save of revision `new` that names the generation `named` moves a cursor."""
    return generation == named and revision < new


def is_saved(*, generation: int, revision: int, named: int, new: int) -> bool:
    """Return whether the store has the content of a save: this save moved the cursor, or is a repeat of a save that did."""
    return generation == named and revision == new

"""The rules of compaction as switches, and the bounds of its exploration."""

from dataclasses import dataclass

from simulator.model.guards import guard


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionGuards:
    """The rules of compaction and its sweeps."""

    claim_epoch_in_prepare: bool = guard("only the newest claim prepares")
    claim_epoch_in_swap: bool = guard("only the newest claim swaps")
    prepare_before_table_commit: bool = guard(
        "a worker sends its table commit only after the task has registered its keys"
    )
    forbidden_keys_not_prepared: bool = guard("a forbidden key cannot be prepared")
    registered_data_not_forbidden: bool = guard("the key of a data file that a task has prepared cannot be forbidden")
    registered_kept_not_forbidden: bool = guard("the key of a kept object that a task has prepared cannot be forbidden")
    swap_only_own_registered_keys: bool = guard("a swap names only keys that its task has prepared")
    ban_outlives_claims: bool = guard(
        "a ban is forgotten only when all claims that existed when it was made have ended"
    )
    object_ban_before_delete: bool = guard("an orphan is deleted only after it is forbidden")
    refused_prepare_counts_failure: bool = guard(
        "a refused key counts as a failure of the task, not as an overtaken claim"
    )
    table_compare_and_swap: bool = guard("a table commit succeeds only on the version that its worker has loaded")
    applied_in_table_commit: bool = guard("a table commit adds the task to `bearlake.applied`")
    winner_from_applied: bool = guard(
        "a worker swaps in the files of the epoch that the table's `bearlake.applied` names"
    )
    ends_checked_in_table_commit: bool = guard("a table that has reached the task's end gets no more files of the task")
    references_before_delete: bool = guard("a WAL object is deleted only when the index does not name it")
    live_snapshot_kept: bool = guard("a data file that a live snapshot names is not deleted")
    claim_checked_after_load: bool = guard(
        "a worker sends its table commit only if its claim is the newest after it loaded the version that the commit replaces"
    )
    fenced_before_cancelled: bool = guard(
        "a merge with a prepared result is dropped only after a fence, and only if the fenced table does not have the result"
    )
    fenced_before_swept: bool = guard(
        "the sweep deletes a forbidden data file only if no snapshot names it after the table was fenced"
    )
    losers_deleted_after_swap: bool = guard("a worker deletes other epochs' objects only after its swap")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBounds:
    """The bounds of the exploration."""

    claim_count: int = 2
    failure_count: int = 2
    """Number of failures after which the task is quarantined."""
    is_merge: bool = False
    """Whether the task is a merge; the contents of the WAL object then stand for its inputs."""

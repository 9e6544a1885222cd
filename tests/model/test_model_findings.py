"""Losses that the protocol once allowed: without the rule that prevents a loss, the model finds the loss again."""

from simulator.model.families import explore_all


def way(name: str, *off: str) -> tuple[str, str]:
    """The shortest way to a broken promise without these rules, as text, and the promise."""
    found = explore_all(name, "small", *off)[-1].violation
    assert found is not None
    return "\n".join(found.trace), found.promise


def test_a_client_counts_a_lost_record_as_delivered_if_an_unknown_producer_may_start_anywhere() -> None:
    trace, promise = way("write", "unknown_starts_at_zero")

    assert "a commit of attempt 0" not in trace
    assert "the client receives the answer to attempt 1: stored" in trace
    assert promise == "the client got the answer that batch 0 is stored, but the log does not have the batch"


def test_the_orphan_sweep_takes_the_kept_object_of_a_prepared_task_if_keys_do_not_belong_to_the_store() -> None:
    trace, promise = way("compaction", "registered_kept_not_forbidden")

    assert "the orphan sweep forbids and deletes the kept object of epoch 1" in trace
    assert promise == "the index names an object of epoch 1 that does not exist"


def test_a_refused_swap_is_retried_forever_if_it_counts_as_no_failure() -> None:
    _, promise = way("compaction", "refused_prepare_counts_failure")

    assert promise == "the live processes can no longer finish an open task"


def test_an_acknowledged_offset_falls_back_if_a_write_that_was_given_up_may_happen_later() -> None:
    trace, promise = way("offsets", "session_revoked_before_retry")

    assert "writes it again" in trace
    assert promise == "an overwritten committed offset came back"


def test_a_late_delete_removes_the_stream_that_was_created_again_if_it_names_no_incarnation() -> None:
    _, promise = way("catalog", "delete_names_incarnation")

    assert promise == "a delete meant for an earlier stream of the same name deleted a new stream"


def test_a_coordinator_confirms_after_it_lost_its_lease_if_it_does_not_look() -> None:
    trace, promise = way("leases", "confirm_before_answer")

    assert "the store accepts: yes" in trace
    assert promise == "A confirmed a request after another server had taken the lease"


def test_a_commit_that_arrives_after_its_ban_was_forgotten_names_deleted_bytes_if_there_is_no_floor() -> None:
    trace, promise = way("write", "floor_checked_in_commit")

    assert "the sweep forbids the token of attempt 0" in trace
    assert "forgets the token of attempt 0" in trace
    assert promise == "offset 1 is readable, but its object does not exist"


def test_an_acknowledged_offset_falls_back_if_a_local_commit_does_not_outdate_forwarded_commits() -> None:
    trace, promise = way("offsets", "local_commit_takes_revision")

    assert "through another server" in trace
    assert "commits offset 30 at A itself" in trace
    assert promise == "an acknowledged offset was overwritten by an earlier commit of the same member"

"""Compaction: claim, write, prepare, load, ask, table compare-and-swap, swap; merges that are dropped; sweeps; a stream that is deleted.

The task is a compaction or a merge. The rules for claims and keys are `metadata/task_object_rules.py`, and the table's decision is
`table/applied_tasks.py`, both unchanged. In SQL only: the claim's check (`hold_task`), the replacement of WAL rows by a swap
(`replace_rows`), and the closing of the task by a final swap (`remove_task`).

This part assumes of the write path that the WAL object's bytes exist until nothing names the object. It promises the write path that a
swap keeps each offset readable and that nothing named by the index or a live snapshot is deleted. It assumes nothing of membership: any
claim may be taken over at any time.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from bearlake.errors import Conflict
from bearlake.metadata import task_object_rules
from bearlake.metadata.task_object_rules import ClaimState, KeyState
from bearlake.table import applied_tasks
from bearlake.table.model import AppliedTask, TableChange
from simulator.model.compaction_guards import CompactionBounds, CompactionGuards
from simulator.model.compaction_state import (
    CANCELLED,
    CANCELLER,
    CLAIMED,
    DONE,
    DROPPED,
    ENDED,
    FENCED,
    LISTED,
    OPEN,
    PREPARED,
    QUARANTINED,
    TASK,
    WORKERS,
    WRITTEN,
    Claim,
    Object,
    State,
)  # fmt: skip
from simulator.model.part import Action, Step

RANGE: Final = {0: (0, 1)}

CLAIM = Action("worker {} claims the task: epoch {}")
WRITE = Action("epoch {} has written its data file and its kept object")
PREPARE = Action("epoch {} prepares: the task has registered its keys")
PREPARE_LOST = Action("a prepare of epoch {} is executed; its reply is lost", is_progress=False)
REFUSED = Action("epoch {} is refused ({}); a failure of the task is counted")
OVERTAKEN = Action("epoch {} learns that it was overtaken ({})")
LOAD = Action("epoch {} loads the table: it has the files of epoch {}")
LOOK = Action("epoch {} loads the table without the task")
SEND = Action("epoch {} learns that its claim is the newest, and sends its commit")
COMMIT = Action("the table commit of epoch {} is executed")
HEAR = Action("epoch {} learns that its table commit is done")
SWAP = Action("epoch {} swaps the objects of epoch {} into the index; the task is closed")
SWAP_LOST = Action("a swap of epoch {} with the objects of epoch {} is executed; its reply is lost", is_progress=False)
LOSERS = Action("epoch {} deletes what epoch {} wrote")
GIVE_BACK = Action("epoch {} gives the task back", is_progress=False)
FENCE = Action("epoch {} fences the table, to drop the merge")
CANCEL = Action("epoch {} drops the merge")
TAKE_OVER = Action("epoch {} finds in the table that it fenced the files of epoch {}")
DROP_APPLIED = Action("a commit of another task drops the record of the applied task from the table", is_progress=False)
OTHER = Action("a commit of another task changes the table", is_progress=False)
DELETE_STREAM = Action("the stream is deleted and the task dropped", is_progress=False)
SWEEP = Action("the orphan sweep forbids and deletes the {} of epoch {}", is_progress=False)
FORBID = Action("the orphan sweep forbids the data file of epoch {}", is_progress=False)
SWEEP_FENCE = Action("the orphan sweep fences the table", is_progress=False)
SWEEP_FILE = Action(
    "the orphan sweep finds the data file of epoch {} in no snapshot, and deletes it", is_progress=False
)
UNUSED = Action("the sweep deletes the WAL object", is_progress=False)
FORGET = Action("the store forgets the ban on the {} of epoch {}", is_progress=False)


class CompactionPart:
    """The part `compaction` of the model; see the module."""

    must_finish = True

    def __init__(self, bounds: CompactionBounds, guards: CompactionGuards) -> None:
        self.name = "compaction-merge" if bounds.is_merge else "compaction"
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """The task is offered."""
        return State(
            task=OPEN, is_held=False, failures=0, claims=(), files=0, is_twice=False, applied=0, is_reached=False, home=0,
            is_wal_there=True,
        )  # fmt: skip

    def is_quiescent(self, state: State) -> bool:
        """Whether the task is done, dropped with its stream, or quarantined."""
        return state.task != OPEN

    def violation(self, state: State) -> str:
        """The broken promise to readers of the stream and of its table, or ""."""
        if state.task != DROPPED:
            if state.home == 0 and not state.is_wal_there:
                return "the index names a WAL object that does not exist"
            if state.home:
                claim = state.claims[state.home - 1]
                if not (claim.data.is_there and claim.kept_object.is_there):
                    return f"the index names an object of epoch {state.home} that does not exist"
                if state.files != 1 << state.home:
                    return "the index and the table name different data files"
        if state.is_twice or state.files & state.files - 1:
            return "the table has the rows twice"
        for epoch, claim in enumerate(state.claims, 1):
            if state.files >> epoch & 1 and not claim.data.is_there:
                return f"a live snapshot names the data file of epoch {epoch}, which does not exist"
        return ""

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        count = len(state.claims)
        if state.task == OPEN:
            if count < self._bounds.claim_count:
                results = sum(1 << epoch for epoch, claim in enumerate(state.claims, 1) if claim.is_prepared)
                after = state._replace(claims=(*state.claims, Claim(results=results)), is_held=True)
                found.append(Step(CLAIM, (WORKERS[count % 2], count + 1), after))
            found.append(Step(DELETE_STREAM, (), self._closed(state, DROPPED)))
        for epoch, claim in enumerate(state.claims, 1):
            found += self._work(state, epoch, claim)
            found += self._sweep(state, epoch, claim)
        if state.is_wal_there and (state.home or state.task == DROPPED or not self._guards.references_before_delete):
            found.append(Step(UNUSED, (), state._replace(is_wal_there=False)))
        if (other := self._replaced(state)) != state:
            found.append(Step(OTHER, (), other))
        if state.applied and state.task in (DONE, DROPPED):
            found.append(Step(DROP_APPLIED, (), self._replaced(state)._replace(applied=0)))
        return found

    # -- workers -------------------------------------------------------------------------------------------------

    def _work(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        if claim.is_sent:
            yield Step(COMMIT, (epoch,), self._listed(state, epoch))
        if claim.has_looked:
            yield self._ask(state, epoch, claim)
        yield from self._drop(state, epoch, claim)
        if claim.stage == CLAIMED:
            if state.applied and self._guards.winner_from_applied:
                yield from self._load(state, epoch, claim)  # an earlier epoch's commit was executed
            else:
                objects = Object(is_there=True)
                written = claim._replace(stage=WRITTEN, data=objects, kept_object=objects)
                yield Step(WRITE, (epoch,), state.with_claim(epoch, written))
        elif claim.stage == WRITTEN:
            yield from self._prepare(state, epoch, claim)
        elif claim.stage == PREPARED:
            yield from self._load(state, epoch, claim)
        elif claim.stage == LISTED:
            yield from self._swap(state, epoch, claim)
        if claim.stage != ENDED and epoch < self._bounds.claim_count and self._is_current(state, epoch):
            ended = state.with_claim(epoch, claim._replace(stage=ENDED))
            yield Step(GIVE_BACK, (epoch,), ended._replace(is_held=False))
        if claim.stage < LISTED and not self._guards.losers_deleted_after_swap:
            yield from self._delete_losers(state, epoch, epoch)

    def _prepare(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        guards = self._guards
        if not guards.prepare_before_table_commit:
            yield from self._load(state, epoch, claim)
        if not self._is_current(state, epoch) and (guards.claim_epoch_in_prepare or state.task != OPEN):
            yield Step(OVERTAKEN, (epoch, "prepare"), state.with_claim(epoch, claim._replace(stage=ENDED)))
        elif all(self._may_prepare(object_.key()) for object_ in (claim.data, claim.kept_object)):
            made = claim._replace(
                is_prepared=True, data=claim.data._replace(task=TASK), kept_object=claim.kept_object._replace(task=TASK)
            )
            yield Step(PREPARE, (epoch,), state.with_claim(epoch, made._replace(stage=PREPARED)))
            if made != claim:
                yield Step(PREPARE_LOST, (epoch,), state.with_claim(epoch, made))
        else:
            yield self._refused(state, epoch, claim, "a key is forbidden")

    def _may_prepare(self, key: KeyState) -> bool:
        if not self._guards.forbidden_keys_not_prepared:
            key = key._replace(forbidden_at=-1)
        return task_object_rules.may_prepare(key, TASK)

    def _load(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        """The worker loads the table and finds the task in it, or sends its commit for the version that it sees."""
        guards = self._guards
        if claim.winner == 0 and not guards.applied_in_table_commit and state.files >> epoch & 1:
            heard = claim._replace(stage=LISTED, winner=epoch)
            yield Step(HEAR, (epoch,), state.with_claim(epoch, heard))
            return
        try:
            is_left = self._is_left(state, epoch)
        except Conflict:
            yield self._refused(state, epoch, claim, "the table contradicts the task")
            return
        if is_left:
            if not (claim.has_looked or claim.is_sent) and claim.stage != CLAIMED:
                looked = claim._replace(has_looked=True)
                yield Step(LOOK, (epoch,), state.with_claim(epoch, looked))
            return
        winner = state.applied if guards.winner_from_applied else epoch
        if winner and state.claims[winner - 1].is_prepared:
            listed = claim._replace(stage=LISTED, winner=winner)
            yield Step(LOAD, (epoch, winner), state.with_claim(epoch, listed))
        else:
            yield self._refused(state, epoch, claim, "the table has the task, and does not say of which epoch")

    def _ask(self, state: State, epoch: int, claim: Claim) -> Step[State]:
        """The worker confirms its claim, and sends its commit for the version that it loaded before."""
        if self._guards.claim_checked_after_load and not self._is_current(state, epoch):
            return Step(
                OVERTAKEN, (epoch, "claim"), state.with_claim(epoch, claim._replace(stage=ENDED, has_looked=False))
            )
        return Step(SEND, (epoch,), state.with_claim(epoch, claim._replace(is_sent=True, has_looked=False)))

    def _drop(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        """A merge is impossible: the index or the table has lost one of its inputs."""
        if not self._bounds.is_merge:
            return
        if claim.stage in (CLAIMED, PREPARED) and self._is_current(state, epoch):
            prepared = [other for other in range(1, epoch) if claim.results >> other & 1]
            if self._guards.fenced_before_cancelled and task_object_rules.may_list(
                prepared, is_prepared=claim.is_prepared
            ):
                winner = state.applied
                if winner and state.claims[winner - 1].is_prepared:
                    after = claim._replace(stage=LISTED, winner=winner, has_looked=False)
                    yield Step(TAKE_OVER, (epoch, winner), state.with_claim(epoch, after))
                else:
                    fenced = state.with_claim(epoch, claim._replace(stage=FENCED, has_looked=False))
                    yield Step(FENCE, (epoch,), self._replaced(fenced))
            else:
                yield self._cancelled(state, epoch, claim)
        elif claim.stage == FENCED:
            if self._is_current(state, epoch):
                yield self._cancelled(state, epoch, claim)
            else:
                yield Step(OVERTAKEN, (epoch, "cancel"), state.with_claim(epoch, claim._replace(stage=ENDED)))
        elif claim.stage == CANCELLER:
            yield from self._delete_losers(state, epoch, 0)

    def _cancelled(self, state: State, epoch: int, claim: Claim) -> Step[State]:
        after = state.with_claim(epoch, claim._replace(stage=CANCELLER, has_looked=False))
        return Step(CANCEL, (epoch,), self._closed(after, CANCELLED))

    def _is_left(self, state: State, epoch: int) -> bool:
        """Return whether the table needs the worker's commit, by the product's rule. Raises `Conflict`."""
        if self._bounds.is_merge:
            seen = applied_tasks.AppliedTasks(ends={}, applied={TASK: state.applied} if state.applied else {})
            change = TableChange(task=AppliedTask(task_id=TASK, epoch=epoch), add=())
            is_left = bool(applied_tasks.decide(seen, [change], ()).changes)
            if is_left and state.files:
                raise Conflict("the table has not all inputs of the merge")
            return is_left
        ends = {0: 1} if state.is_reached and self._guards.ends_checked_in_table_commit else {}
        seen = applied_tasks.AppliedTasks(ends=ends, applied={TASK: state.applied} if state.applied else {})
        change = TableChange(task=AppliedTask(task_id=TASK, epoch=epoch, ranges=RANGE), add=())
        return bool(applied_tasks.decide(seen, [change], ()).changes)

    def _listed(self, state: State, epoch: int) -> State:
        """Return the state after the epoch's table commit."""
        applied = epoch if self._guards.applied_in_table_commit else state.applied
        is_twice = state.is_twice or bool(state.files >> epoch & 1)
        is_reached = self._guards.applied_in_table_commit or state.is_reached
        listed = state._replace(
            files=state.files | 1 << epoch, is_twice=is_twice, applied=applied, is_reached=is_reached
        )
        return self._replaced(listed)

    def _replaced(self, state: State) -> State:
        """Give the table a new version: workers must load it again, and commits sent for the old version can no longer succeed."""
        if not self._guards.table_compare_and_swap:
            return state
        claims = tuple(claim._replace(has_looked=False, is_sent=False) for claim in state.claims)
        return state._replace(claims=claims)

    def _swap(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        guards, winner = self._guards, claim.winner
        chosen = state.claims[winner - 1]
        if state.home:  # already done, by this or another epoch
            if state.home == winner:
                yield from self._delete_losers(state, epoch, winner)
            yield Step(OVERTAKEN, (epoch, "swap"), state.with_claim(epoch, claim._replace(stage=ENDED)))
        elif state.task == DROPPED or (guards.claim_epoch_in_swap and not self._is_current(state, epoch)):
            yield Step(OVERTAKEN, (epoch, "swap"), state.with_claim(epoch, claim._replace(stage=ENDED)))
        elif guards.swap_only_own_registered_keys and not all(
            task_object_rules.may_swap_in(object_.key(), TASK) for object_ in (chosen.data, chosen.kept_object)
        ):
            yield self._refused(state, epoch, claim, "a key is not the task's")
        else:
            indexed = chosen._replace(
                data=chosen.data._replace(is_indexed=True), kept_object=chosen.kept_object._replace(is_indexed=True)
            )
            after = self._closed(state.with_claim(winner, indexed)._replace(home=winner), DONE)
            ended = after.claims[epoch - 1]._replace(stage=LISTED)
            yield Step(SWAP, (epoch, winner), after.with_claim(epoch, ended))

    def _delete_losers(self, state: State, epoch: int, keep: int) -> Iterator[Step[State]]:
        """The worker deletes the objects of other epochs that it knows of and whose files are in no table."""
        for other, claim in enumerate(state.claims[:epoch], 1):
            if (
                other != keep
                and (claim.is_prepared or other == epoch)
                and (claim.data.is_there or claim.kept_object.is_there)
            ):
                gone = claim._replace(
                    data=claim.data._replace(is_there=False), kept_object=claim.kept_object._replace(is_there=False)
                )
                yield Step(LOSERS, (epoch, other), state.with_claim(other, gone))

    def _refused(self, state: State, epoch: int, claim: Claim, why: str) -> Step[State]:
        ended = state.with_claim(epoch, claim._replace(stage=ENDED))
        if not self._is_current(state, epoch):
            return Step(OVERTAKEN, (epoch, why), ended)
        if not self._guards.refused_prepare_counts_failure:
            return Step(OVERTAKEN, (epoch, why), state)  # released, claimed again, and so on endlessly
        failures = state.failures + 1
        is_last = epoch == self._bounds.claim_count  # the next claim is beyond the bound
        task = QUARANTINED if failures == self._bounds.failure_count or is_last else OPEN
        return Step(REFUSED, (epoch, why), ended._replace(failures=failures, task=task, is_held=False))

    def _is_current(self, state: State, epoch: int) -> bool:
        newest = ClaimState(len(state.claims), 0 if state.is_held else None, 0 if state.is_held else None)
        return task_object_rules.is_current(newest if state.task == OPEN else None, epoch, 0, 0)

    def _closed(self, state: State, task: int) -> State:
        """Close the task and end its registrations."""
        claims = tuple(
            claim._replace(data=claim.data._replace(task=0), kept_object=claim.kept_object._replace(task=0))
            for claim in state.claims
        )
        return state._replace(task=task, is_held=False, claims=claims)

    # -- sweeps --------------------------------------------------------------------------------------------------

    def _sweep(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        held = [len(state.claims)] if state.task == OPEN and state.is_held else []
        for name, object_ in ("data file", claim.data), ("kept object", claim.kept_object):
            if object_ is claim.data and name == "data file" and self._guards.fenced_before_swept:
                yield from self._sweep_file(state, epoch, claim)
            elif object_.is_there and self._may_delete(
                state, epoch, object_, is_data=object_ is claim.data and name == "data file"
            ):
                ban = object_.ban or len(state.claims) + 1
                gone = object_._replace(
                    is_there=False, ban=ban if self._guards.object_ban_before_delete else object_.ban
                )
                yield Step(SWEEP, (name, epoch), state.with_claim(epoch, _with_object(claim, name, gone)))
            if object_.ban and (
                not self._guards.ban_outlives_claims or task_object_rules.may_forget_ban(object_.ban - 1, held)
            ):
                yield Step(
                    FORGET, (name, epoch), state.with_claim(epoch, _with_object(claim, name, object_._replace(ban=0)))
                )

    def _sweep_file(self, state: State, epoch: int, claim: Claim) -> Iterator[Step[State]]:
        """Forbid, fence, look, delete."""
        object_ = claim.data
        if not object_.is_there or not self._may_delete(state, epoch, object_, is_data=True):
            return
        if not object_.ban:
            banned = object_._replace(ban=len(state.claims) + 1 if self._guards.object_ban_before_delete else 0)
            if banned.ban:
                yield Step(FORBID, (epoch,), state.with_claim(epoch, claim._replace(data=banned)))
                return
        if not object_.is_fenced:
            fenced = state.with_claim(epoch, claim._replace(data=object_._replace(is_fenced=True)))
            yield Step(SWEEP_FENCE, (), self._replaced(fenced))
        else:
            gone = object_._replace(is_there=False)
            yield Step(SWEEP_FILE, (epoch,), state.with_claim(epoch, claim._replace(data=gone)))

    def _may_delete(self, state: State, epoch: int, object_: Object, *, is_data: bool) -> bool:
        guards, key = self._guards, object_.key()
        if not (guards.registered_data_not_forbidden if is_data else guards.registered_kept_not_forbidden):
            key = key._replace(task_id=0)
        if is_data and guards.live_snapshot_kept and state.files >> epoch & 1:
            return False
        if state.task == DROPPED and object_.is_indexed:
            return True
        return task_object_rules.may_forbid(key)


def _with_object(claim: Claim, name: str, object_: Object) -> Claim:
    return claim._replace(data=object_) if name == "data file" else claim._replace(kept_object=object_)

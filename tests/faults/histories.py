"""The observations of a fault test's clients as a history in the format of `simulator.history`, checked by the same checker.

Clients keep what they sent and got, with times of this process's monotonic clock; the file is written from that in the end. What is not
recorded so that it excludes the least: a record without a receipt was sent at the beginning, and its outcome is unknown.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.history import format as history_format
from simulator.history import model
from simulator.history.check import check_files

if TYPE_CHECKING:
    from faults.checking import Acknowledged, Log, Name, Read

KEEP = "BEARLAKE_TEST_FAULTS_HISTORIES"
"""Environment variable with the folder where histories are kept; without it they are deleted."""
STREAM = "faults"
READ_COUNT_MAX = 500


def violations(
    acknowledged: "Sequence[Acknowledged]",
    unknown: "Iterable[Name]",
    log: "Log",
    readers: "Mapping[str, Sequence[Read]]",
    members: "Mapping[str, Sequence[Read]]",
    *,
    kind: model.Kind,
) -> list[str]:
    """Broken promises, as the checker reports them. Records of producers that are not named here were sent at an unknown earlier time."""
    keep = os.environ.get(KEEP)
    with tempfile.NamedTemporaryFile("w", prefix="faults-", suffix=".jsonl", dir=keep, delete=keep is None) as file:
        file.write(history_format.header("monotonic_ns"))
        operations = _operations(acknowledged, unknown, log, readers, members, kind)
        for number, (process, start, end, call, answer) in enumerate(operations):
            file.write(history_format.invoke(number, start, process, call))
            if end is not None:
                file.write(history_format.completion(number, end, model.Outcome.OK, answer))
        file.flush()
        return [str(violation) for violation in check_files([Path(file.name)]).violations]


_Told = tuple[str, int, int | None, model.Call, model.Answer]
"""Process, start, end (None: never answered), call, answer."""


def _operations(
    acknowledged: "Sequence[Acknowledged]",
    unknown: "Iterable[Name]",
    log: "Log",
    readers: "Mapping[str, Sequence[Read]]",
    members: "Mapping[str, Sequence[Read]]",
    kind: model.Kind,
) -> Iterator[_Told]:
    everything = [read for reads in (*log.values(), *readers.values(), *members.values()) for read in reads]
    times = [_ns(record.at_s) for record in (*everything, *acknowledged)] + [
        _ns(record.sent_s) for record in acknowledged
    ]
    first, last = min(times, default=0), max(times, default=0)
    for record in acknowledged:
        start = _ns(record.sent_s) if record.is_sent_told else first
        call = _produce(record.partition, record.name, kind)
        yield record.name.producer, start, _ns(record.at_s), call, model.Answer(offset=record.offset)
    known = {record.name for record in acknowledged}
    hidden = set(unknown) - known
    named = {name.producer for name in known | hidden}
    hidden |= {read.name for read in everything if read.name.producer not in named}
    # A record without a receipt that no reader saw has no known partition.
    for partition, name in sorted({(read.partition, read.name) for read in everything if read.name in hidden}):
        yield name.producer, first, None, _produce(partition, name, kind), model.NOTHING
    for process, reads in (*members.items(), *readers.items()):
        yield from _reads(process, reads, is_from_start=process in readers)
    for partition, reads in log.items():
        yield from _reads("log", reads, is_from_start=True)
        complete = model.Complete(log=model.Log(STREAM, partition))
        yield "log", last + 1, last + 2, complete, model.NOTHING


def _reads(process: str, reads: "Sequence[Read]", *, is_from_start: bool) -> Iterator[_Told]:
    """One operation per run of one partition's records. A reader that keeps its own position asks for the offset after its last record."""
    position: dict[int, int] = {}
    at = 0
    while at < len(reads):
        partition, until = reads[at].partition, at
        while until < len(reads) and until - at < READ_COUNT_MAX and reads[until].partition == partition:
            if not is_from_start and until > at and reads[until].offset != reads[until - 1].offset + 1:
                break  # the group's other members had the partition meanwhile
            until += 1
        batch = reads[at:until]
        start = position.get(partition, 0) if is_from_start else batch[0].offset
        position[partition] = batch[-1].offset + 1
        seen = tuple(model.Seen(read.offset, _id(read.name)) for read in batch)
        call = model.Read(log=model.Log(STREAM, partition), start=start)
        yield process, _ns(batch[0].at_s), _ns(batch[-1].at_s), call, model.Answer(records=seen)
        at = until


def _produce(partition: int, name: "Name", kind: model.Kind) -> model.Produce:
    record = model.Record(_id(name))
    log = model.Log(STREAM, partition)
    return model.Produce(log=log, producer=name.producer, kind=kind, sequence=name.number, records=(record,))


def _id(name: "Name") -> str:
    return f"{name.producer}.{name.number}"


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

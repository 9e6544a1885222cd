"""The gates: pure functions that check the measurements of a run. `test_nemesis_gates.py` shows a measurement that fails each gate.

A gate without anything to check has `is_passed` None. A run of `COMPLETE_S` or more must check every gate: what such a run did not
observe is a fault of the run, and the gate fails.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nemesis.schedule import InjectedFault

COMPLETE_S = 900.0
"""Seconds of load from which on a run must draw and see every kind of fault. A round of all kinds takes five to eight minutes."""
TRIES_MIN = 3
"""A shorter run fails if a kind was tried this often and never took effect. Fewer tries may have hit unused resources."""
ATTEMPTS_MAX = 12
"""Failures of one task: five until it is quarantined, then one more per retry (every 20 s)."""
CLAIMS_MAX = 40
FAULTS_PER_HANG = 20
"""So many faults may make one call of librdkafka hang for ever (docs/kafka.md, "Clients")."""
IDLE_CPU_MAX = 0.35
GROWTH_MAX = 1.25
GROWTH_MB = 30.0
WARM_MB = 150.0
"""Memory of any server after it has read a data file: it loads libraries then, which does not count as growth."""
LIFE_SAMPLES_MIN = 20
"""Smallest number of samples of one process (one every 5 s) whose growth is checked."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A condition that must hold. `is_passed` None: this run could not check it; `figures` gives the reason."""

    name: str
    is_passed: bool | None
    figures: str


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What the stores still hold at the end of a run."""

    orphans: int
    """WAL and kept objects that the metadata store does not know, and that are not from later than now by the store's clock."""
    unused: int
    """WAL objects that no index names."""
    open_tasks: int
    quarantined: int
    later: int = 0
    """Objects that wait until the store's clock reaches the time at which they were written or became unused; reported, no failure."""
    orphan_keys: Sequence[str] = ()
    """Some of the orphans."""
    stale_files: Sequence[str] = ()
    """Data files that neither the index nor a table snapshot names."""
    stale_metadata: Sequence[str] = ()
    """Metadata files in a table's folder that neither the table's metadata nor its snapshots name."""
    missing: Sequence[str] = ()
    """Files that a table names and the object store does not have."""


def faults_seen(
    possible: Collection[str], impossible: Collection[str], injected_faults: Sequence[InjectedFault], load_s: float
) -> Gate:
    """Every kind of fault that is possible in this run took effect; a short run reports the kinds that did not."""
    seen = {fault.kind for fault in injected_faults if fault.proof and not fault.error}
    tries = Counter(injected_fault.kind for injected_fault in injected_faults)
    missing = sorted(set(possible) - seen)
    undrawn = [kind for kind in missing if not tries[kind]]
    unseen = [f"{kind} ({tries[kind]} tries)" for kind in missing if tries[kind]]
    figures = f"{len(set(possible) & seen)} of {len(possible)} kinds"
    figures += f"; never drawn: {', '.join(undrawn)}" if undrawn else ""
    figures += f"; never seen at work: {', '.join(unseen)}" if unseen else ""
    figures += f"; not possible here: {', '.join(sorted(impossible))}" if impossible else ""
    is_failed = any(tries[kind] >= TRIES_MIN for kind in missing) or (missing and load_s >= COMPLETE_S)
    is_passed = False if is_failed else None if missing else True
    return Gate(name="every kind of fault took effect", is_passed=is_passed, figures=figures)


def leftovers(last: Leftovers | None, peak: int, *, has_workers: bool, waited_s: float) -> list[Gate]:
    """Unused objects are deleted, and every file that a table names exists. `last` None: the stores did not answer."""
    shrink, names, quarantined = (
        "unused objects and files are deleted",
        "every file that a table names exists",
        "no task is quarantined at the end",
    )
    if not has_workers:
        return [Gate(name=shrink, is_passed=None, figures="no worker in this size")]
    if last is None:
        return [
            Gate(name=name, is_passed=False, figures="the stores did not answer")
            for name in (shrink, names, quarantined)
        ]
    is_clean = not (last.orphans or last.unused or last.open_tasks or last.stale_files or last.stale_metadata)
    examples = [*last.orphan_keys[:2], *last.stale_files[:2], *last.stale_metadata[:2]]
    figures = (
        f"{last.orphans} orphans, {last.unused} unused WAL objects, {len(last.stale_files)} data files, "
        f"{len(last.stale_metadata)} metadata files, {last.open_tasks} open tasks {waited_s:.0f} s after healing; {peak} at the peak"
        + (f"; {last.later} wait for the store's clock" if last.later else "")
        + (f"; {', '.join(examples)}" if examples else "")
    )
    missing = f"{len(last.missing)}" + (f": {', '.join(last.missing[:3])}" if last.missing else "")
    return [
        Gate(name=shrink, is_passed=is_clean, figures=figures),
        Gate(name=names, is_passed=not last.missing, figures=missing),
        Gate(name=quarantined, is_passed=last.quarantined == 0, figures=f"{last.quarantined}"),
    ]


def attempts(sample_count: int, attempts_max: int, claims_max: int, *, has_workers: bool) -> Gate:
    """The failures and claims of each task are bounded in all samples. Without a sample the gate fails."""
    name = "failures and claims per task are bounded"
    if not has_workers:
        return Gate(name=name, is_passed=None, figures="no worker in this size")
    figures = f"at most {attempts_max} failures and {claims_max} claims of one task, in {sample_count} samples"
    is_passed = sample_count > 0 and attempts_max <= ATTEMPTS_MAX and claims_max <= CLAIMS_MAX
    return Gate(name=name, is_passed=is_passed, figures=figures)


def memory(lives: Mapping[tuple[str, int], Sequence[int]], load_s: float) -> Gate:
    """Resident memory of each process over its lifetime, so a restart hides no growth: the last fifth is compared with the second fifth."""
    checked = {life: growth for life, sizes in lives.items() if (growth := growth_mb(sizes)) is not None}
    worst: dict[str, tuple[float, float]] = {}
    for (name, _), pair in checked.items():
        if name not in worst or pair[1] - pair[0] > worst[name][1] - worst[name][0]:
            worst[name] = pair
    text = ", ".join(f"{name} {before:.0f} → {after:.0f} MB" for name, (before, after) in sorted(worst.items()))
    unchecked = sorted({name for name, _ in lives} - worst.keys())
    if unchecked or not worst:
        text += ("; " if text else "") + f"lives too short to check: {', '.join(unchecked) or 'all'}"
    has_grown = any(after > max(before, WARM_MB) * GROWTH_MAX + GROWTH_MB for before, after in worst.values())
    is_long = load_s >= COMPLETE_S
    is_passed = False if has_grown or (is_long and not worst) else None if not worst else True
    return Gate(name="memory of servers does not grow", is_passed=is_passed, figures=text)


def growth_mb(sizes: Sequence[int]) -> tuple[float, float] | None:
    """Return the median (MB) of the second and of the last fifth of one process's samples; None if there are too few samples."""
    if len(sizes) < LIFE_SAMPLES_MIN:
        return None
    fifth = len(sizes) // 5
    return median(sizes[fifth : 2 * fifth]) / 1e6, median(sizes[-fifth:]) / 1e6


def key_compaction(written: int, left: int | None, load_s: float, error: str = "") -> Gate:
    """The topic with key compaction is readable, and records were removed. `left` None: not read; `error` may say why."""
    name = "key compaction removes records, and leaves the topic readable"
    if left is None:
        return Gate(name=name, is_passed=False, figures=error or "a partition was not read in time")
    is_idle = left >= written
    is_passed = True if not is_idle else False if load_s >= COMPLETE_S else None
    return Gate(name=name, is_passed=is_passed, figures=f"{left:,} of {written:,} records are left")


def restored(found: tuple[Sequence[str], Sequence[str]] | None, load_s: float) -> Gate:
    """A backup brings back what it promises: `found` has the problems and figures of the drill, None: no backup was taken."""
    name = "a backup restores one moment of the run, and the restored deployment goes on"
    if found is None:
        return Gate(name=name, is_passed=False if load_s >= COMPLETE_S else None, figures="no backup was taken")
    problems, figures = found
    return Gate(name=name, is_passed=not problems, figures="; ".join([*problems[:5], *figures]))


def idle_cpu(shares: Mapping[str, float]) -> Gate:
    """No process uses much CPU without load."""
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    is_passed = bool(shares) and max(shares.values()) < IDLE_CPU_MAX
    return Gate(
        name="idle processes use little CPU", is_passed=is_passed, figures=f"of one core: {text or 'nothing measured'}"
    )


def promises(violations: int | None, text: str) -> Gate:
    """No violation; the gate also fails if the history could not be checked."""
    return Gate(name="every promise holds", is_passed=violations == 0, figures=text.replace("|", "/"))


def clients_got_answers(kinds: Collection[str], answered: Mapping[str, int]) -> Gate:
    """Each kind of client got answers, since a history without operations breaks no promise."""
    idle = sorted(kind for kind in set(kinds) if not answered.get(kind))
    figures = f"no answer to: {', '.join(idle)}" if idle else f"the least: {_least(answered)}"
    return Gate(name="every kind of client got answers", is_passed=not idle, figures=figures)


def clients_ended(failures: Sequence[str], hang_count: int, fault_count: int) -> Gate:
    """No client failed by itself: a failed client is a fault of the run, and its observations are lost.

    Of librdkafka's calls (`copying.py`), one may hang, and one more per `FAULTS_PER_HANG` faults.
    """
    is_passed = not failures and hang_count <= 1 + fault_count // FAULTS_PER_HANG
    figures = [*failures[:5], *([f"{hang_count} calls of librdkafka did not return"] if hang_count else [])]
    return Gate(name="no client failed", is_passed=is_passed, figures="; ".join(figures) or "none")


def _least(answered: Mapping[str, int]) -> str:
    if not answered:
        return "none"
    kind = min(answered, key=lambda name: answered[name])
    return f"{kind} {answered[kind]:,}"

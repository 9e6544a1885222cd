"""Which access rules of a stream belong to its Stream, and which of them are missing or left over.

A rule belongs to a Stream if it did not exist when the operator first saw the Stream name it. Rules that existed before are not touched,
whether a person, another Stream or a program made them.

The Stream's status lists its rules (`accessRules`). A rule is listed before it is created, and stays listed until it is deleted:

    named ──listed──> created ──no longer named──> deleted ──no longer listed──>

The list has a limit (`LISTED_COUNT_MAX`). Rules that were listed but not created, such as refused ones, leave it in the next run that does
not find them in the spec.

So no rule of a Stream can be lost from sight. A crash between listing and creating leaves a listed rule that does not exist; the next run
creates or deletes it. Whoever makes that same rule in between makes the rule of the Stream, which named it first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bearlake_operator.api import AccessRule, Resource

SHOWN_COUNT = 3
"""Rules that a message shows."""
LISTED_COUNT_MAX = 864
"""Rules that a status lists: those of three versions of a spec (32 items of 9 operations each), about 1 MB with the longest principals.
Three: the version in force, one that was refused, and its correction."""
DELETED_COUNT = 250
"""Rules of one stream that are deleted at once. The servers accept 1,000 per request, and 1 MiB: 4 KiB for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessView:
    """What was observed of a Stream's access rules.

    `are_granted`: all rules that the Stream names exist. `problem`: what went wrong; `is_refused`: a retry fails until somebody changes
    something. `existing` are rules that the Stream names and that do not belong to it. `deleted` are its former rules, now deleted.
    """

    are_granted: bool = False
    problem: str = ""
    is_refused: bool = False
    existing: Collection[AccessRule] = ()
    deleted: Collection[AccessRule] = ()


def listed(resource: Resource) -> frozenset[AccessRule]:
    """The rules that belong to a Stream, by its status."""
    found = resource.get("status", {}).get("accessRules", ())
    return frozenset(
        AccessRule(rule["principal"], rule["host"], rule["operation"], rule["permission"]) for rule in found
    )


def shown(rules: Iterable[AccessRule]) -> list[dict[str, str]]:
    """Rules as a status lists them."""
    return [rule._asdict() for rule in sorted(rules)]


def to_list(
    named: Collection[AccessRule],
    own: Collection[AccessRule],
    present: Collection[AccessRule],
    left: Collection[AccessRule] = (),
) -> frozenset[AccessRule]:
    """The rules that a Stream must list before any of them is created.

    `named` are those of its spec, `own` those listed so far, `present` the stream's rules. `left` are those of Streams with the same stream
    name that are being deleted: this Stream takes them over.
    """
    return frozenset(own) | {rule for rule in named if rule not in present or rule in left}


def describe(rule: AccessRule) -> str:
    """A rule for people: `Allow Read to User:alice`."""
    where = "" if rule.host == "*" else f" from {rule.host}"
    return f"{rule.permission} {rule.operation} to {rule.principal}{where}"


def describe_all(rules: Iterable[AccessRule]) -> str:
    """The first rules, and the number of the others."""
    found = [describe(rule) for rule in sorted(rules)]
    more = len(found) - SHOWN_COUNT
    return ", ".join(found[:SHOWN_COUNT]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A Stream that must list `new_count` rules besides the `listed_count` that it lists.

    `more_count`: how many more rules it names than it lists, without those that it takes over from a Stream of its namespace that is being
    deleted.
    """

    stream: tuple[str, str]
    """Namespace and name."""
    listed_count: int
    new_count: int
    more_count: int


def refusals(
    growths: Sequence[Growth], counts: Mapping[str, int], namespace_count_max: int, total_count_max: int
) -> Mapping[tuple[str, str], str]:
    """The Streams that may not list their new rules, with the messages. The first Streams come first.

    `counts` has the rules that all Streams of a namespace list now. A Stream that names no more rules than it lists is limited neither by
    its namespace nor by the total of all namespaces: it may replace its rules. A limit of 0 is none.
    """
    counts_now = dict(counts)
    total_count = sum(counts.values())
    refused: dict[tuple[str, str], str] = {}
    for growth in growths:
        namespace, more_count = growth.stream[0], growth.more_count
        count = counts_now.get(namespace, 0)
        if growth.new_count and growth.listed_count + growth.new_count > LISTED_COUNT_MAX:
            refused[growth.stream] = (
                f"The Stream still has {growth.listed_count} access rules, those of former versions of its spec included, and needs "
                f"{growth.new_count} more; the limit is {LISTED_COUNT_MAX}."
            )
        elif growth.new_count and more_count > 0 and 0 < namespace_count_max < count + more_count:
            refused[growth.stream] = (
                f"The Streams of the namespace {namespace} have {count} access rules in this data layer, and this Stream needs "
                f"{more_count} more; the limit is {namespace_count_max} (accessRuleCountMax in the operator's settings)."
            )
        elif growth.new_count and more_count > 0 and 0 < total_count_max < total_count + more_count:
            refused[growth.stream] = (
                f"The Streams of all namespaces may have {total_count_max} access rules in this data layer "
                f"(accessRuleTotalCountMax in the operator's settings); fewer are left than the {more_count} that this Stream needs."
            )
        else:
            counts_now[namespace] = count + growth.new_count
            total_count += growth.new_count
    return refused


def in_deletion_batches(
    stream_rules: Mapping[str, Collection[AccessRule]], count_max: int
) -> list[list[tuple[str, AccessRule]]]:
    """As `in_batches`, but a stream with more than `DELETED_COUNT` rules has several batches.

    Those that allow are deleted before those that deny: in between, no more is allowed than before or after.
    """
    batches = in_batches(
        {name: rules for name, rules in stream_rules.items() if len(rules) <= DELETED_COUNT}, count_max
    )
    for stream, rules in sorted(stream_rules.items()):
        if len(rules) > DELETED_COUNT:
            ordered = sorted(rules, key=lambda rule: (rule.permission == "Deny", rule))
            pairs = [(stream, rule) for rule in ordered]
            batches += [pairs[start : start + DELETED_COUNT] for start in range(0, len(pairs), DELETED_COUNT)]
    return batches


def in_batches(
    stream_rules: Mapping[str, Collection[AccessRule]], count_max: int
) -> list[list[tuple[str, AccessRule]]]:
    """The rules of all streams in batches of about `count_max`; those of one stream are in one batch, so that they change together."""
    batches: list[list[tuple[str, AccessRule]]] = []
    for stream, rules in sorted(stream_rules.items()):
        batch = [(stream, rule) for rule in sorted(rules)]
        if batches and len(batches[-1]) + len(batch) <= count_max:
            batches[-1] += batch
        elif batch:
            batches.append(batch)
    return batches

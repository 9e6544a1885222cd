"""Which access rules of a stream belong to its Stream, and which of them are missing or left over.

A rule belongs to a Stream if it did not exist when the operator first saw the Stream name it. Rules that existed before are not touched,
whether a person, another Stream or a program made them.

The Stream's status lists its rules (`accessRules`). A rule is listed before it is created, and stays listed until it is deleted:

    named ──listed──> created ──no longer named──> deleted ──no longer listed──>

So no rule of a Stream can be lost from sight. A crash between listing and creating leaves a listed rule that does not exist; the next run
creates or deletes it. Whoever makes that same rule in between makes the rule of the Stream, which named it first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bearlake_operator.api import AccessRule, Resource

SHOWN_COUNT = 3
"""Rules that a message shows."""


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

"""The part of the drill that looks at users, access rules, quotas, schemas and subscriptions (`clients/definitions.py`).

Their versions are those of one moment of the backup, which `simulator.history` checks as it checks committed offsets. And no id of a
schema is given out again in a context in which a client has got it, because clients and records keep ids for ever (decision 357).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from nemesis.clients.definitions import KINDS, LOG, write_schema
from simulator.history.reader import Events

Given = Mapping[str, Collection[int]]
"""By name, the ids that clients have got."""


def names_of(events: Iterable[Events]) -> Mapping[str, set[str]]:
    """Return the names of each kind whose definition a client has begun."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for event in events:
        if event.begun["op"] == "commit" and tuple(event.begun["log"]) == LOG:
            kind, _, name = event.begun["group"].partition("/")
            found[kind].add(name)
    return found


def ids_of(events: Iterable[Events]) -> Given:
    """Return the ids of schemas that clients have got, by name."""
    found: dict[str, set[int]] = {}
    for event in events:
        if event.begun["op"] == "commit" and event.ended is not None and "id" in event.ended:
            found.setdefault(event.begun["group"].partition("/")[2], set()).add(event.ended["id"])
    return found


def read(
    addresses: Mapping[str, str], names: Mapping[str, Collection[str]], record: Callable[..., None]
) -> tuple[list[str], list[str]]:
    """Read all definitions and record their versions; return problems and figures. `addresses`: of a server by protocol."""
    problems, counts = [], Counter[str]()
    kinds = {kind: definition for kind, definition in KINDS.items() if definition.protocol in addresses}
    for kind, definition in kinds.items():
        versions = definition.read(addresses[definition.protocol])
        counts[kind] = len(versions)
        if unknown := sorted(set(versions) - set(names[kind])):
            problems.append(f"{len(unknown)} definitions that no client has made, as {kind}/{unknown[0]}")
        for name in sorted(names[kind]):
            record("committed", {"offset": versions.get(name)}, group=f"{kind}/{name}", log=LOG)
    shown = ", ".join(f"{counts[kind]} of {len(names[kind])} {kind}s" for kind in kinds)
    return problems, [f"{shown} of the run are there"]


def repeated(given: Given, new: Mapping[str, int]) -> list[str]:
    """Return the names in whose contexts the restored registry gave out an id again."""
    return [
        f"the restored registry gave out the id {new[name]} of {name} again"
        for name in sorted(new)
        if new[name] in given.get(name, ())
    ]


def new_ids(address: str, given: Given) -> Mapping[str, int]:
    """Register one more schema in the context of each name; return the ids."""
    return {name: int(write_schema(address, name, max(ids) + NEW)["id"]) for name, ids in given.items()}


NEW = 1_000_000
"""Makes the content of a new schema differ from all others."""

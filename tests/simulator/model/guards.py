"""Safety rules as named switches: a part of the model checks its guards before each step that a rule forbids or changes.

A part declares its rules as a frozen dataclass of booleans, each made by `guard("what the rule says")`. `without` switches rules off and
`rules` lists them, so that the explorer can delete each rule and look for the violation that it prevents.
"""

from dataclasses import field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar, cast


class Guards(Protocol):
    """A frozen dataclass whose fields are all made by `guard`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: as in typeshed


G = TypeVar("G", bound=Guards)


def guard(rule: str) -> bool:
    """Declare a field of a guards dataclass: a rule that holds unless it is switched off. `rule` is one sentence."""
    return field(default=True, metadata={"rule": rule})


def rules(guards: Guards) -> dict[str, str]:
    """Return the name and sentence of each rule, in declaration order."""
    return {field.name: field.metadata["rule"] for field in fields(guards)}


def without(guards: G, *names: str) -> G:
    """Return the same guards with the named rules switched off. Raises `KeyError` for an unknown name."""
    unknown = set(names) - set(rules(guards))
    if unknown:
        raise KeyError(f"no such guards: {', '.join(sorted(unknown))}")
    return cast(
        G, replace(cast(Any, guards), **dict.fromkeys(names, False))
    )  # Any: dataclasses.replace wants an instance type

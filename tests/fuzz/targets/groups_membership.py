"""What members of a group send each other through the server: subscriptions and assignments."""

from bearlake.streams.groups import assignment
from fuzz.target import Target


def member(data: bytes) -> object:
    """Decode a subscription or an assignment."""
    if data[:1] == b"s":
        return len(assignment.decode_subscription(data[1:]))
    return len(assignment.decode_assignment(data[1:]))


def _seeds() -> list[bytes]:
    return [
        b"s" + assignment.encode_subscription(["a", "größe", ""]),
        b"s" + assignment.encode_subscription([]),
        b"a" + assignment.encode_assignment({"a": [0, 1, 70_000], "b": []}),
        b"a",
    ]


TARGETS = [Target(name="group members", seeds=_seeds, run=member, share=0.5)]

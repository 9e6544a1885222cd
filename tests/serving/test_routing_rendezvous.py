"""Rendezvous hashing: same answer everywhere, even spread, and only the keys of a changed server move."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata.model import Server, ServerRef
from bearlake.serving.routing import candidates, choose, key_of, weight

KEYS = range(4_000)


def server(node_id: int, *, zone: str | None = None, is_draining: bool = False, listener: str = "kafka") -> Server:
    return Server(
        ref=ServerRef(node_id=node_id, epoch=1),
        name=f"server-{node_id}",
        zone=zone,
        endpoints={listener: f"10.0.0.{node_id}:9092"},
        version="1",
        is_draining=is_draining,
        heartbeat_count=0,
        timeout_ms=6_000,
    )


def owners(node_ids: list[int]) -> dict[int, int]:
    servers = [server(node_id) for node_id in node_ids]
    return {key: choose(key, servers).ref.node_id for key in KEYS}


@given(st.permutations([server(node_id) for node_id in range(6)]), st.integers(0, 2**63 - 1))
def test_the_order_of_servers_does_not_matter(servers: list[Server], key: int) -> None:
    assert choose(key, servers) == choose(key, sorted(servers, key=lambda s: s.ref.node_id))


def test_keys_spread_evenly() -> None:
    counts = Counter(owners(list(range(5))).values())

    assert all(700 <= counts[node_id] <= 900 for node_id in range(5))


def test_partitions_of_one_stream_spread_evenly() -> None:
    servers = [server(node_id) for node_id in range(4)]
    counts = Counter(choose((7 << 20) | index, servers).ref.node_id for index in range(1_000))

    assert all(200 <= counts[node_id] <= 300 for node_id in range(4))


def test_a_server_that_leaves_moves_its_own_keys_only() -> None:
    before, after = owners([0, 1, 2, 3]), owners([0, 1, 3])

    assert all(after[key] == owner for key, owner in before.items() if owner != 2)


def test_a_server_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    before, after = owners([0, 1, 2]), owners([0, 1, 2, 3])
    moved = [key for key in KEYS if before[key] != after[key]]

    assert all(after[key] == 3 for key in moved)
    assert 800 <= len(moved) <= 1_200


def test_weights_are_pinned_since_all_versions_must_agree() -> None:
    assert weight(0, 0) == 0x8209B480FAED1B10
    assert weight(123_456_789, 7) == 0x64F9686680B224C5
    assert key_of("my-group") == 0x13886F9C4FFA5FDF


def test_draining_servers_are_offered_only_if_all_drain() -> None:
    staying, leaving = server(1), server(2, is_draining=True)

    assert candidates([leaving, staying], "kafka") == [staying]
    assert candidates([leaving], "kafka") == [leaving]


def test_clients_of_a_zone_are_sent_to_it_as_long_as_it_has_servers() -> None:
    east, west = server(1, zone="east"), server(2, zone="west")

    assert candidates([west, east], "kafka", "west") == [west]
    assert candidates([west, east], "kafka", "north") == [east, west]
    assert candidates([west, east], "kafka") == [east, west]


def test_a_draining_zone_falls_back_to_another() -> None:
    east, west = server(1, zone="east", is_draining=True), server(2, zone="west")

    assert candidates([east, west], "kafka", "east") == [west]


def test_only_servers_with_the_listener_are_offered() -> None:
    inside, outside = server(1), server(2, listener="kafka:EXTERNAL")

    assert candidates([inside, outside], "kafka:EXTERNAL") == [outside]
    assert candidates([inside, outside], "pulsar") == []

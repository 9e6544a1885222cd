"""Where a consumer instance belongs: the same for all servers, and moved by as little as possible."""

from bearlake.metadata.model import Server, ServerRef
from bearlake.protocols.rest.proxy import placement


def server(node_id: int) -> Server:
    return Server(
        ref=ServerRef(node_id=node_id, epoch=1),
        name=f"server-{node_id}",
        zone=None,
        endpoints={"rest": f"127.0.0.1:{8000 + node_id}"},
        version="0",
        is_draining=False,
        heartbeat_count=0,
        timeout_ms=6_000,
    )


SERVERS = [server(node_id) for node_id in range(5)]


def test_servers_agree_whatever_the_order_in_which_they_see_each_other() -> None:
    for number in range(100):
        key = (f"g{number % 3}", f"name-{number}")

        assert placement.order(key, SERVERS) == placement.order(key, SERVERS[::-1])


def test_only_instances_of_a_leaving_server_move_each_to_its_next_server() -> None:
    keys = [("g", f"name-{number}") for number in range(500)]
    for key in keys:
        whole = placement.order(key, SERVERS)

        assert placement.order(key, SERVERS[:-1]) == [server for server in whole if server != SERVERS[-1]]
    firsts = [placement.order(key, SERVERS)[0] for key in keys]
    assert all(50 < firsts.count(server) < 150 for server in SERVERS)


def test_the_group_also_determines_the_placement() -> None:
    assert len({placement.order((f"g{number}", "one"), SERVERS)[0].ref for number in range(100)}) == len(SERVERS)


def test_a_name_that_a_server_made_up_belongs_to_it() -> None:
    for server in SERVERS:
        names = [placement.new_name(server.ref.node_id) for _ in range(20)]

        assert [placement.order(("g", name), SERVERS)[0] for name in names] == [server] * 20
        assert len(set(names)) == 20
    assert placement.order(("g", placement.new_name(9)), SERVERS)[0] in SERVERS

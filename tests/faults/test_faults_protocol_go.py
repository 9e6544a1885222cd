"""A gRPC server drains under load from Go's gRPC library: no call ends with a status other than OK."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bearlake.client import Client
from faults.cluster import Cluster, Stores, running
from faults.waiting import pause
from protocols.grpc.test_grpc_languages import build_go

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

STREAM = "from-go"
STOP_TIMEOUT_S = 60.0


def test_a_grpc_server_drains_and_no_call_from_go_fails(
    folder: Path, stores: Stores, load_s: float, tell: Callable[[object], None]
) -> None:
    program = build_go(folder) / "load"
    with running(Cluster(folder, stores)) as cluster:
        first, second = cluster.add("one", role="grpc"), cluster.add("two", role="grpc")
        first.start()
        second.start()
        both = [server.address("grpc") for server in (first, second)]
        with Client(*both) as client:
            client.create_stream(STREAM)
        load = subprocess.Popen(
            [program, ",".join(both), STREAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert load.stdout is not None
            assert load.stdout.readline() == "started\n"
            pause(load_s)
            drained_s = first.terminate()
            pause(load_s)
            said, _ = load.communicate("", STOP_TIMEOUT_S)
        finally:
            load.kill()
            load.wait(STOP_TIMEOUT_S)
        with Client(second.address("grpc")) as client:
            log = {item.offset: item.value.decode() for item in client.read(STREAM, follow=False) if item.value}

    lines = [line.split(" ", 1) for line in said.splitlines()]
    kinds = Counter(kind for kind, _ in (line if len(line) == 2 else (line[0], "") for line in lines))
    acknowledged = [rest.split() for kind, rest in (line for line in lines if len(line) == 2) if kind == "acknowledged"]
    read = [rest.split() for kind, rest in (line for line in lines if len(line) == 2) if kind == "read"]
    statuses = [line[1] for line in lines if line[0] == "status"]
    tell(f"ended {drained_s:.1f} s after SIGTERM; {dict(kinds)}; statuses other than OK {statuses}")
    assert load.returncode == 0
    assert not statuses
    assert {int(offset): f"{name}.{number}.0" for name, number, offset in acknowledged} == log
    assert len(acknowledged) == len(log)
    assert [int(offset) for offset, _ in read] == list(range(len(read)))
    assert all(log[int(offset)] == value for offset, value in read)
    assert kinds["drain"] >= 2

"""Temporary keys for clients: moto's STS gives them, and moto's S3 enforces the policy that they came with, against PyIceberg's reads."""

import asyncio
import functools
import json
import logging
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.config import Config
from botocore.session import Session
from typing_extensions import override

from bearlake.errors import Unavailable
from bearlake.metadata.model import Stream
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.objects.sts import RoleKeys, Sts
from bearlake.objects.sts_settings import RoleSettings
from bearlake.protocols.rest.iceberg.session_policy import Grant, place_of, session_policy
from bearlake.protocols.rest.iceberg.vending import Vending
from bearlake.streams.access.rights import DESCRIBE_STREAM, READ_STREAM
from bearlake.streams.catalog import StreamView
from fixtures import s3
from fixtures.catalog_server import CatalogNode, serving
from fixtures.current_lake import CurrentLake
from fixtures.rights import EVERY, OnlyRights
from fixtures.typed_lake import TypedLake, typed_lake
from fixtures.waiting import WAIT_S

ROLE = "arn:aws:iam::123456789012:role/tables"
TRUST = {
    "Version": "2012-10-17",
    "Statement": {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"},
}
ASKS = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
ORDERS = "/v1/namespaces/streams/tables/orders"
KEYS = f"[default]\naws_access_key_id = {s3.ACCESS_KEY_ID}\naws_secret_access_key = {s3.SECRET_ACCESS_KEY}\n"
NEVER = 1_000_000_000


@functools.cache
def amazon() -> Session:
    """Amazon's own library; it reads the description of a service once."""
    return Session()


class Cloud(NamedTuple):
    """A moto server with S3, STS and IAM, and a role that may do nothing of its own."""

    endpoint: str

    def client(self, service: str, **keys: str) -> Any:
        """A client of Amazon's own library, with the server's keys or others."""
        own = {"aws_access_key_id": s3.ACCESS_KEY_ID, "aws_secret_access_key": s3.SECRET_ACCESS_KEY}
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        return amazon().create_client(
            service, endpoint_url=self.endpoint, region_name=s3.REGION, config=config, **(keys or own)
        )

    def assumed(self) -> list[dict[str, Any]]:
        """The sessions that STS has given so far."""
        with urllib.request.urlopen(f"{self.endpoint}/moto-api/data.json", timeout=WAIT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["sts"].get("AssumedRole", [])
        return found

    def enforce(self, policy: str) -> None:
        """Let the role do what a session's policy allows, and refuse everything else from now on."""
        self.client("iam").put_role_policy(RoleName="tables", PolicyName="session", PolicyDocument=policy)
        self.refuse_after(0)

    def refuse_after(self, request_count: int) -> None:
        """Check the rights of requests once so many have come."""
        body = str(request_count).encode()
        url, headers = f"{self.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        urllib.request.urlopen(request, timeout=WAIT_S).close()


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a moto server, which takes a second to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEARLAKE_TEST_S3", "moto")
        server, process = s3.start(tmp_path_factory.mktemp("moto"))
    try:
        yield server.endpoint
    finally:
        s3.stop(process)


@pytest.fixture
def cloud(moto: str, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """See `Cloud`. The server has forgotten what earlier tests did."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)  # the servers have a file of keys, and PyIceberg has none
    found = Cloud(moto)
    found.refuse_after(NEVER)  # a test that failed may have left it refusing
    with urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/reset", method="POST"), timeout=WAIT_S):
        pass
    found.client("iam").create_role(RoleName="tables", AssumeRolePolicyDocument=json.dumps(TRUST))
    found.client("s3").create_bucket(Bucket="lake")
    return found


class Recorded(Sts):
    """Keeps the policies that it has asked for."""

    def __init__(self, settings: RoleSettings, cloud: CloudSettings) -> None:
        super().__init__(settings, cloud)
        self.policies: list[str] = []

    @override
    async def assume(self, session_name: str, policy: str) -> RoleKeys:
        self.policies.append(policy)
        return await super().assume(session_name, policy)


class Scene(NamedTuple):
    """A lake in S3 with the stream `orders` (one record compacted, one in the tail) and the stream `secret`, and its catalog."""

    cloud: Cloud
    lake: TypedLake
    view: StreamView
    server: CatalogNode
    rights: OnlyRights
    sts: Recorded


@pytest.fixture
async def scene(tmp_path: Path, cloud: Cloud) -> AsyncIterator[Scene]:
    """See `Scene`."""
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    url = "s3://lake/deployment"
    settings = CloudSettings(endpoint=cloud.endpoint, region=s3.REGION, credentials_file=str(keys))
    store = open_store(url, ObjectStoreSettings(cloud=settings))
    role = RoleSettings(role_arn=ROLE, external_id="outside", sts_endpoint=cloud.endpoint)
    rights, sts = OnlyRights(EVERY), Recorded(role, settings)
    async with typed_lake(tmp_path, (store, url)) as lake:
        stores = lake.stores
        view = await lake.create(table__value__mode="raw")
        secret = await lake.create("secret", table__value__mode="raw")
        for stream in (view, secret):
            await lake.produce(stream, b"0")
        for stream in (view, secret):
            await lake.compact(stream)
        for stream in (view, secret):
            await lake.produce(stream, b"1")
        vending = Vending(sts, role, settings, url, stores.clock)
        async with serving(
            tmp_path,
            stores.metadata,
            stores.store,
            lake.tables,
            lake.streams.catalog,
            rights,
            clock=stores.clock,
            vending=vending,
        ) as server:
            yield Scene(cloud, lake, view, server, rights, sts)
    sts.close()


@pytest.mark.integration
@pytest.mark.parametrize(("warehouse", "offsets"), [("bearlake", [0]), ("live", [0, 1]), ("planned", [0, 1])])
async def test_pyiceberg_without_keys_reads_its_table_and_nothing_else(
    scene: Scene, warehouse: str, offsets: list[int]
) -> None:
    secret = (await scene.server.ask("GET", "/v1/live/namespaces/streams/tables/secret")).body["metadata"]
    tail = {found.key async for found in scene.lake.stores.store.list("tail/")}

    def read(catalog: Any) -> tuple[list[int], set[str]]:
        table = catalog.load_table("streams.orders")
        files = [
            task.file.file_path for task in table.scan().plan_files()
        ]  # before the server has lost its rights, too
        scene.cloud.enforce(scene.sts.policies[-1])
        try:
            reads = table.io
            found = sorted(reads_rows(reads, files))
            others = [secret["snapshots"][-1]["manifest-list"], *(f"s3://lake/deployment/{key}" for key in tail)]
            return found, {name for name in others if is_readable(reads, name)}
        finally:
            scene.cloud.refuse_after(NEVER)

    found, opened = await scene.server.client(read, warehouse=warehouse)

    assert found == offsets
    assert opened == set()


def reads_rows(io: Any, files: list[str]) -> list[int]:
    """Offsets in the files, read with a table's own keys."""
    import pyarrow.parquet as pq

    found: list[int] = []
    for name in files:
        with io.new_input(name).open() as stream:
            found += pq.read_table(stream, columns=["_offset"])["_offset"].to_pylist()
    return found


def is_readable(io: Any, name: str) -> bool:
    """Whether a table's keys open a file."""
    try:
        with io.new_input(name).open() as stream:
            return bool(stream.read())
    except OSError:
        return False


async def test_only_who_may_write_gets_keys_that_may(scene: Scene) -> None:
    await scene.server.ask("GET", ORDERS, headers=ASKS)
    scene.rights.rights = frozenset((*DESCRIBE_STREAM, *READ_STREAM))
    await scene.server.ask("GET", ORDERS, headers=ASKS)

    writer, reader = scene.sts.policies

    assert "s3:PutObject" in writer
    assert "s3:PutObject" not in reader
    assert "s3:DeleteObject" not in writer


async def test_an_answer_with_keys_is_not_kept_and_has_no_version(scene: Scene) -> None:
    plain = await scene.server.ask("GET", ORDERS)
    answer = await scene.server.ask("GET", ORDERS, headers={**ASKS, "If-None-Match": plain.headers["ETag"]})

    assert answer.status == 200
    assert "ETag" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"
    (found,) = answer.body["storage-credentials"]
    assert answer.body["metadata"]["location"].startswith(found["prefix"].rstrip("/"))
    assert answer.body["config"] == found["config"]
    assert {"s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.endpoint"} <= set(found["config"])


@pytest.mark.parametrize("header", [{}, {"X-Iceberg-Access-Delegation": "remote-signing"}], ids=["nothing", "signing"])
async def test_a_client_that_does_not_take_keys_gets_none(scene: Scene, header: dict[str, str]) -> None:
    answer = await scene.server.ask("GET", ORDERS, headers=header)

    assert answer.body["config"] == {}
    assert "storage-credentials" not in answer.body
    assert scene.sts.policies == []


async def test_the_server_signs_nothing_for_clients(scene: Scene) -> None:
    answer = await scene.server.ask(
        "POST", f"{ORDERS}/sign", {"region": "x", "uri": "x", "method": "GET", "headers": {}}
    )

    assert (answer.status, answer.error) == (406, "UnsupportedOperationException")


async def test_a_client_gets_the_same_keys_for_half_of_their_life(scene: Scene) -> None:
    loads = [scene.server.ask("GET", ORDERS, headers=ASKS) for _ in range(5)]
    keys = {answer.body["config"]["s3.session-token"] for answer in await asyncio.gather(*loads)}
    credentials = await scene.server.ask("GET", f"{ORDERS}/credentials")
    (again,) = credentials.body["storage-credentials"]
    scene.lake.stores.clock.advance(1_800_000)
    later = await scene.server.ask("GET", ORDERS, headers=ASKS)

    assert keys == {again["config"]["s3.session-token"]}
    assert later.body["config"]["s3.session-token"] not in keys


async def test_keys_are_asked_for_in_the_clients_name_with_the_external_id(scene: Scene) -> None:
    await scene.server.ask("GET", ORDERS, headers=ASKS)

    (session,) = scene.cloud.assumed()

    assert (session["session_name"], session["external_id"], session["role_arn"]) == ("ANONYMOUS", "outside", ROLE)


async def test_no_key_is_in_the_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await scene.server.ask("GET", ORDERS, headers=ASKS)

    config = answer.body["config"]
    logged = "\n".join(
        f"{record.getMessage()} {record.__dict__}" for record in caplog.records if "bearlake" in record.name
    )

    for name in ("s3.secret-access-key", "s3.session-token"):
        assert config[name] not in logged
    assert "secret" not in repr(
        RoleKeys(access_key_id="a", secret_access_key="secret", session_token="secret", expires_ms=0)
    )


async def test_a_new_table_comes_with_keys_that_may_write_and_delete(scene: Scene) -> None:
    new = {"name": "mine", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    answer = await scene.server.ask("POST", "/v1/namespaces/streams/tables", new, headers=ASKS)

    assert answer.status == 200
    assert "s3:DeleteObject" in scene.sts.policies[-1]
    assert answer.body["storage-credentials"][0]["prefix"] == f"{answer.body['metadata']['location']}/"


@pytest.mark.parametrize("is_staged", [True, False], ids=["staged", "created"])
@pytest.mark.parametrize("folder", ["lake", "lake/", "lake/theirs", "lake/default", "lake/default/"])
async def test_no_keys_for_one_table_reach_the_folder_of_another_one_that_is_made_later(
    scene: Scene, folder: str, is_staged: bool
) -> None:
    await scene.server.ask("POST", "/v1/namespaces", {"namespace": ["theirs"]})
    fields: dict[str, Any] = {"schema": {"type": "struct", "schema-id": 0, "fields": []}}
    mine = {"name": "mine", "location": f"s3://lake/deployment/{folder}", "stage-create": is_staged, **fields}
    await scene.server.ask("POST", "/v1/namespaces/streams/tables", mine, headers=ASKS)
    policies = list(scene.sts.policies)
    theirs = await scene.server.ask("POST", "/v1/namespaces/theirs/tables", {"name": "orders", **fields})

    assert theirs.status == 200
    place = theirs.body["metadata"]["location"].removeprefix("s3://")
    granted = [name for text in policies for name in json.loads(text)["Statement"][0]["Resource"]]
    assert not [name for name in granted if f"arn:aws:s3:::{place}/x".startswith(name.removesuffix("*"))]


async def test_a_load_fails_if_sts_does_not_answer() -> None:
    refusing = RoleSettings(role_arn=ROLE, sts_endpoint="http://127.0.0.1:1", deadline_ms=2_000)
    sts = Sts(refusing, CloudSettings(region=s3.REGION))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "x")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "y")
        with pytest.raises(Unavailable, match="STS gave no keys"):
            await sts.assume("User:x/é", "{}")
    sts.close()


async def test_a_server_without_a_role_gives_no_keys_and_says_so(tmp_path: Path) -> None:
    async with typed_lake(tmp_path) as lake:
        await lake.create()
        stores = lake.stores
        async with serving(
            tmp_path, stores.metadata, stores.store, lake.tables, lake.streams.catalog, clock=stores.clock
        ) as server:
            await server.ask("GET", "/v1/live/namespaces/streams/tables/orders")
            loaded = await server.ask("GET", ORDERS, headers=ASKS)
            asked = await server.ask("GET", f"{ORDERS}/credentials")

    assert (loaded.status, loaded.body["config"]) == (200, {})
    assert (asked.status, asked.error) == (406, "UnsupportedOperationException")


# -- policies ------------------------------------------------------------------------------------------------------


def policy(folder: str, *, stream: Stream | None = None, may_write: bool = False) -> dict[str, Any]:
    """A session policy of a table's folder."""
    grant = Grant(bucket="lake", base="", folder=folder, stream=stream, has_tail=False, may_write=may_write)
    found: dict[str, Any] = json.loads(session_policy(grant) or "null")
    return found


def test_a_location_with_wildcards_means_only_itself() -> None:
    resources = policy("lake/*/?x$")["Statement"][0]["Resource"]

    assert resources == ["arn:aws:s3:::lake/lake/${*}/${?}x${$}/*"]


def test_a_name_too_long_for_a_policy_gets_no_keys() -> None:
    assert policy("x" * 2_000) is None


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("s3://lake/d/table/a", "d/table/a"),
        ("s3a://lake/d/table/a/", "d/table/a"),
        ("s3://other/d/table/a", None),
        ("s3://lake/elsewhere/a", None),
        ("s3://lake/d/", None),
        ("file:///lake/d/a", None),
    ],
)
def test_only_places_in_the_object_store_get_keys(location: str, place: str | None) -> None:
    assert place_of(location, "lake", "d/") == place


async def test_current_tables_and_tables_of_other_engines_come_with_keys_that_read_in_every_warehouse(
    scene: Scene,
) -> None:
    configs = {"table__current": "on", "table__value__mode": "raw", "table__current__freshness_ms": "1000"}
    current = CurrentLake(scene.lake, await scene.lake.create("customers", **configs))
    await current.send((b"a", b"1"))
    await current.update()
    new = {"name": "mine", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    await scene.server.ask("POST", "/v1/namespaces/streams/tables", new)

    places = ["/v1", "/v1/live", "/v1/planned"]
    asked = [f"{place}/namespaces/streams/tables/customers_current" for place in places]
    asked.append("/v1/live/namespaces/streams/tables/mine")
    for path in asked:
        scene.sts.policies.clear()
        scene.lake.stores.clock.advance(1_800_000)  # half of the keys' life: they are asked for again
        answer = await scene.server.ask("GET", path, headers=ASKS)
        keys = await scene.server.ask("GET", f"{path}/credentials")

        (found,) = answer.body["storage-credentials"]
        assert found["prefix"] == f"{answer.body['metadata']['location']}/"
        assert keys.body["storage-credentials"] == [found]
        assert not [word for word in ("PutObject", "DeleteObject", "tail/") if word in scene.sts.policies[-1]]

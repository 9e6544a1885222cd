"""Fixtures of the operator's tests: an in-memory API server, and a metrics API with pods (`fixtures.metrics_api_scene`)."""

import json
import shutil
from types import SimpleNamespace

import aiohttp
import pytest

from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.metrics_api.process import CertificateReloader
from bearlake_operator.metrics_api.scraper import Scraper
from bearlake_operator.metrics_api.server import Server
from fixtures.metrics_api_scene import AUTOSCALER, SETTINGS, FakeCluster, proxy_of, serve
from fixtures.small_cluster import SmallCluster, served
from fixtures.small_operator import Operator


@pytest.fixture
async def stack():
    """Functions that are called at the end, the last one first."""
    closers = []
    yield closers
    for close in reversed(closers):
        await close()


@pytest.fixture
async def cluster():
    """A small API server on loopback."""
    made = SmallCluster()
    async with served(made.handle) as made.url:
        yield made


@pytest.fixture
async def operator(cluster):
    """An operator without a process, on the in-memory API server."""
    made = Operator(cluster)
    yield made
    await made.kube.close()


@pytest.fixture
def fake_cluster(certificates):
    """A cluster with pods, for the metrics API."""
    return FakeCluster(certificates["authority"].read_text())


@pytest.fixture
async def scraper(fake_cluster, stack, tmp_path):
    """A scraper of the fake cluster's pods."""
    pod_port = await serve(
        stack,
        {"/metrics": fake_cluster.metrics, "/v1/compaction/backlog": fake_cluster.backlog},
        *("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    )
    api_port = await serve(
        stack,
        {
            "/api/v1/namespaces/lake/pods": fake_cluster.list,
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication": fake_cluster.config_map,
        },
        "127.0.0.1",
    )
    (tmp_path / "default").mkdir()
    (tmp_path / "default/token").write_text("first\n")
    kube = KubeClient(ClientConfig(server=f"http://127.0.0.1:{api_port}", namespace="lake"))
    stack.append(kube.close)
    opened = Scraper(SETTINGS, kube, tmp_path, period_s=0.01, window_s=0.02, port=pod_port)
    stack.append(opened.close)
    opened.kube, opened.token_file = kube, tmp_path / "default/token"
    return opened


@pytest.fixture
async def api(scraper, stack, certificates, tmp_path):
    """A client with the front proxy's certificate; `api.server` is the server."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    shutil.copy(certificates["server"], folder / "tls.crt")
    shutil.copy(certificates["server_key"], folder / "tls.key")
    server = Server(scraper, "lake", "127.0.0.1", 0)
    stack.append(server.close)
    reloader = CertificateReloader(scraper.kube, server, folder)
    await reloader.reload()
    session = aiohttp.ClientSession()
    stack.append(session.close)

    of_proxy = proxy_of(certificates)

    async def ask(path, headers=AUTOSCALER, trust=of_proxy):
        async with session.get(f"https://localhost:{server.port}{path}", headers=headers, ssl=trust) as answer:
            return answer.status, json.loads(await answer.read())

    return SimpleNamespace(ask=ask, server=server, reloader=reloader, folder=folder, session=session)

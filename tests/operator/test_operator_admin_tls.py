"""The operator and the metrics API verify the servers whose admin API has TLS, before they send a token."""

import shutil
import ssl
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from bearlake_operator.admin import AdminClient
from bearlake_operator.errors import Unavailable
from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.manifests import labels
from bearlake_operator.metrics_api.scraper import Scraper
from bearlake_operator.settings import AdminTls
from bearlake_operator.trust import Trust, trust_of
from fixtures.metrics_api_scene import SETTINGS, kafka, serve

TOKEN = "sixteen-characters"
LAYER = SETTINGS.data_layers["default"]
SECURE = replace(LAYER, admin=replace(LAYER.admin, tls=AdminTls(secret="tls", server_name="localhost")))


@pytest.fixture
def authorities(tmp_path, certificates):
    """A folder as the chart mounts it."""
    folder = tmp_path / "authorities"
    (folder / "default").mkdir(parents=True)
    shutil.copy(certificates["authority"], folder / "default/ca.crt")
    return folder


async def secure(stack, certificates, routes):
    """Serve on a port of 127.0.0.1, which is not in the certificate; returns the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates["server"], certificates["server_key"])
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    stack.append(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return runner.addresses[0][1]


@pytest.fixture
async def servers(stack, certificates):
    """An admin API; `seen` are the Authorization headers that it got."""
    seen = []

    async def streams(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({"streams": [], "next": None})

    port = await secure(stack, certificates, {"/v1/streams": streams})
    return SimpleNamespace(seen=seen, url=f"https://127.0.0.1:{port}")


async def test_the_operator_verifies_servers_by_the_name_that_they_share(stack, servers, authorities):
    client = AdminClient(lambda: [servers.url], lambda: TOKEN, trust_of("default", SECURE, authorities))
    stack.append(client.close)

    assert await client.streams() == {}
    assert servers.seen == [f"Bearer {TOKEN}"]


async def test_no_token_is_sent_to_a_server_that_is_not_verified(stack, servers, authorities, certificates):
    file = authorities / "default/ca.crt"
    for trust in (Trust(), Trust(file), Trust(file, "other"), Trust(certificates["client"], "localhost")):
        client = AdminClient(lambda: [servers.url], lambda: TOKEN, trust)
        stack.append(client.close)
        with pytest.raises(Unavailable, match="certificate"):
            await client.streams()

    assert servers.seen == []


async def test_changed_authorities_count_for_the_next_request(stack, servers, authorities, certificates):
    file = authorities / "default/ca.crt"
    client = AdminClient(lambda: [servers.url], lambda: TOKEN, trust_of("default", SECURE, authorities))
    stack.append(client.close)
    assert await client.streams() == {}

    shutil.copy(certificates["client"], file)
    with pytest.raises(Unavailable, match="certificate"):
        await client.streams()
    file.write_text("half written")
    with pytest.raises(Unavailable):
        await client.streams()
    file.unlink()
    with pytest.raises(Unavailable, match=r"ca\.crt"):
        await client.streams()
    shutil.copy(certificates["authority"], file)
    assert await client.streams() == {}


async def test_pods_are_scraped_over_tls(stack, fake_cluster, certificates, authorities, tmp_path):
    pod_port = await secure(stack, certificates, {"/metrics": fake_cluster.metrics})
    api_port = await serve(stack, {"/api/v1/namespaces/lake/pods": fake_cluster.list}, "127.0.0.1")
    (tmp_path / "default").mkdir()
    (tmp_path / "default/token").write_text(fake_cluster.token)
    kube = KubeClient(ClientConfig(server=f"http://127.0.0.1:{api_port}", namespace="lake"))
    stack.append(kube.close)
    settings = replace(SETTINGS, data_layers={"default": SECURE})
    found = Scraper(settings, kube, tmp_path, period_s=0.01, window_s=0.02, port=pod_port, authorities=authorities)
    stack.append(found.close)
    kafka(fake_cluster, "kafka-0", "127.0.0.1")

    await found.scrape()
    fake_cluster.pods["kafka-0"].count += 10
    await found.scrape()
    pods = found.pods(lambda of_pod: of_pod[labels.DATA_LAYER] == "default")
    assert set(found.rates(pods, "bearlake_requests_per_second")) == {"kafka-0"}


async def test_no_redirect_is_followed_to_a_server_that_is_not_verified(stack, authorities, certificates):
    async def elsewhere(request):
        return web.json_response({"streams": [], "next": None})

    plain_port = await serve(stack, {"/v1/streams": elsewhere}, "127.0.0.1")

    async def redirect(request):
        raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{plain_port}{request.path}")

    port = await secure(stack, certificates, {"/v1/streams": redirect})
    trust = trust_of("default", SECURE, authorities)
    client = AdminClient(lambda: [f"https://127.0.0.1:{port}"], lambda: TOKEN, trust)
    stack.append(client.close)

    with pytest.raises(Unavailable):
        await client.streams()


@pytest.mark.parametrize("content", ["", "half written"])
def test_a_file_without_authorities_cannot_be_used(tmp_path, content):
    """Such as `ca.crt` in a Secret of cert-manager whose issuer does not name its authority: it must not stop other data layers."""
    file = tmp_path / "ca.crt"
    file.write_text(content)

    with pytest.raises(OSError, match=r"ca\.crt"):
        Trust(file).context()


def test_comments_in_a_file_of_authorities_may_have_any_letters(tmp_path, certificates):
    file = tmp_path / "ca.crt"
    file.write_text("# Főtanúsítvány\n" + certificates["authority"].read_text(), encoding="utf-8")

    assert len(Trust(file).context().get_ca_certs()) == 1


async def test_without_tls_nothing_is_verified_and_addresses_are_plain():
    assert LAYER.admin.scheme == "http"
    assert SECURE.admin.scheme == "https"
    assert trust_of("default", LAYER, None).context() is True

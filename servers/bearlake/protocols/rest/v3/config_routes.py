"""Routes …/topics/{topic}/configs: get, set and reset configs, also several at once (`configs:alter`)."""

from collections.abc import Mapping

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, answer, body, find
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import StreamView
from bearlake.streams.config import Config
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams

_CONFIGS = CLUSTER + "/topics/{topic}/configs"


class ConfigRoutes:
    """Handlers of topic configs."""

    def __init__(self, streams: Streams, servers: LiveServers, settings: RestSettings) -> None:
        self._streams = streams
        self._servers = servers
        self._settings = settings

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get(_CONFIGS, self.all)
        router.add_post(f"{_CONFIGS}:alter", self.alter)
        router.add_get(f"{_CONFIGS}/{{config}}", self.get)
        router.add_put(f"{_CONFIGS}/{{config}}", self.set)
        router.add_delete(f"{_CONFIGS}/{{config}}", self.reset)

    async def all(self, request: web.Request) -> web.Response:
        """List a topic's configs."""
        site = Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        shown = [_shown(site, view, config) for config in stream_configs.ALL]
        return answer(site.listing("KafkaTopicConfigList", f"/topics/{view.name}/configs", shown))

    async def get(self, request: web.Request) -> web.Response:
        """Get a config."""
        site = Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        return answer(_shown(site, view, _config(request)))

    async def set(self, request: web.Request) -> web.Response:
        """Set a config."""
        Site(request, self._servers)
        asked = await body(request, models.NEW_VALUE, self._settings)
        view = await find(self._streams, request, Operation.DESCRIBE)
        await self._alter(principal_of(request), view, {_config(request).name: str(asked.value)}, [])
        return web.Response(status=204)

    async def reset(self, request: web.Request) -> web.Response:
        """Reset a config to its default."""
        Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        await self._alter(principal_of(request), view, {}, [_config(request).name])
        return web.Response(status=204)

    async def alter(self, request: web.Request) -> web.Response:
        """Set and reset several configs, all or none."""
        Site(request, self._servers)
        asked = await body(request, models.CHANGES, self._settings)
        view = await find(self._streams, request, Operation.DESCRIBE)
        given: dict[str, str] = {}
        unset: list[str] = []
        for at, change in enumerate(asked.data or ()):
            if change.name not in stream_configs.BY_NAME:
                raise _unknown(change.name)
            if change.operation == "DELETE":
                unset.append(change.name)
            elif change.value is not None:
                given[change.name] = str(change.value)
            else:
                raise Problem(400, 400, f"data[{at}].value: expected text to set {change.name} to, found nothing")
        if not asked.validate_only:
            await self._alter(principal_of(request), view, given, unset)
        return web.Response(status=204)

    async def _alter(self, who: Principal, view: StreamView, given: Mapping[str, str], unset: list[str]) -> None:
        try:
            await self._streams.change(who, view.stream, lambda _: (given, unset))
        except Invalid as error:
            raise Problem(400, 40002, str(error)) from error


def _config(request: web.Request) -> Config:
    name = request.match_info["config"]
    config = stream_configs.BY_NAME.get(name)
    if config is None:
        raise _unknown(name)
    return config


def _unknown(name: str) -> Problem:
    return Problem(404, 404, f"Config {name[:100]} cannot be found.")


def _shown(site: Site, view: StreamView, config: Config) -> dict[str, object]:
    own = view.stream.configs
    value, is_own = stream_configs.value(own, config.name), config.name in own
    source = "DYNAMIC_TOPIC_CONFIG" if is_own else "DEFAULT_CONFIG"
    synonyms = [{"name": config.name, "value": config.default, "source": "DEFAULT_CONFIG"}]
    if is_own:
        synonyms.insert(0, {"name": config.name, "value": value, "source": source})
    return site.resource(
        "KafkaTopicConfig",
        f"/topics/{view.name}/configs/{config.name}",
        f"/topic={view.name}/config={config.name}",
        {
            "topic_name": view.name,
            "name": config.name,
            "value": value,
            "documentation": config.doc,
            "is_default": not is_own,
            "is_read_only": False,
            "is_sensitive": False,
            "source": source,
            "synonyms": synonyms,
        },
    )

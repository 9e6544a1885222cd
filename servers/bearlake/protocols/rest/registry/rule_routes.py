"""Routes for config, mode and compatibility checks."""

from typing import Any

from aiohttp import web

from bearlake.protocols.rest.registry import requests
from bearlake.protocols.rest.registry.answers import answer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.http.login import principal_of
from bearlake.streams.schemas import rules
from bearlake.streams.schemas.model import Document
from bearlake.streams.schemas.service import Schemas


class RuleRoutes:
    """The handlers under `/config`, `/mode` and `/compatibility`."""

    def __init__(self, schemas: Schemas, limits: RegistrySettings) -> None:
        """`limits`: those of bodies."""
        self._schemas = schemas
        self._limits = limits

    def add_to(self, router: web.UrlDispatcher, prefix: str) -> None:
        """Register the handlers under `prefix`."""
        for path in (f"{prefix}/config", f"{prefix}/config/{{subject}}"):
            router.add_get(path, self.config)
            router.add_put(path, self.set_config)
            router.add_delete(path, self.unset_config)
        for path in (f"{prefix}/mode", f"{prefix}/mode/{{subject}}"):
            router.add_get(path, self.mode)
            router.add_put(path, self.set_mode)
            router.add_delete(path, self.unset_mode)
        versions = f"{prefix}/compatibility/subjects/{{subject}}/versions"
        router.add_post(versions, self.check)
        router.add_post(f"{versions}/{{version}}", self.check)

    async def config(self, request: web.Request) -> web.Response:
        """Get a config; with `defaultToGlobal` the effective config."""
        is_in_scope = requests.flag(request, "defaultToGlobal")
        return answer(
            request,
            await self._schemas.config(principal_of(request), requests.subject_of(request), is_in_scope=is_in_scope),
        )

    async def set_config(self, request: web.Request) -> web.Response:
        """Change a config and return the accepted fields."""
        update = await requests.config_of(request, self._limits)
        return answer(
            request,
            _as_sent(await self._schemas.set_config(principal_of(request), requests.subject_of(request), update)),
        )

    async def unset_config(self, request: web.Request) -> web.Response:
        """Delete a config and return its former value."""
        return answer(request, await self._schemas.unset_config(principal_of(request), requests.subject_of(request)))

    async def mode(self, request: web.Request) -> web.Response:
        """Get a mode; with `defaultToGlobal` the effective mode."""
        is_in_scope = requests.flag(request, "defaultToGlobal")
        mode = await self._schemas.mode(principal_of(request), requests.subject_of(request), is_in_scope=is_in_scope)
        return answer(request, {"mode": mode.value})

    async def set_mode(self, request: web.Request) -> web.Response:
        """Set a mode."""
        mode = await requests.mode_of(request, self._limits)
        await self._schemas.set_mode(
            principal_of(request), requests.subject_of(request), mode, is_forced=requests.flag(request, "force")
        )
        return answer(request, {"mode": mode.value})

    async def unset_mode(self, request: web.Request) -> web.Response:
        """Delete a mode and return its former value."""
        return answer(
            request,
            {"mode": (await self._schemas.unset_mode(principal_of(request), requests.subject_of(request))).value},
        )

    async def check(self, request: web.Request) -> web.Response:
        """Check whether a schema is compatible; with `verbose`, list the incompatibilities."""
        version = requests.version_of(request) if "version" in request.match_info else None
        messages = await self._schemas.check(
            principal_of(request),
            requests.subject_of(request),
            await requests.draft_of(request, self._limits),
            version,
            is_normalized=requests.flag(request, "normalize"),
        )
        shown: dict[str, Any] = {"is_compatible": not messages}
        if requests.flag(request, "verbose"):
            shown["messages"] = messages
        return answer(request, shown)


def _as_sent(config: Document) -> dict[str, Any]:
    """Return a config with the level under the field name that requests use."""
    return {"compatibility" if key == rules.LEVEL else key: value for key, value in config.items()}

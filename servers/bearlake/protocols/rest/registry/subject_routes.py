"""Routes for subjects and their versions: list, look up, register, delete."""

from aiohttp import web

from bearlake.protocols.rest.registry import requests
from bearlake.protocols.rest.registry.answers import answer, shown_version, text_answer
from bearlake.protocols.rest.registry.schema_routes import formatted
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.http.login import principal_of
from bearlake.streams.schemas.model import SchemaVersion
from bearlake.streams.schemas.service import Schemas


class SubjectRoutes:
    """The handlers under `/subjects`."""

    def __init__(self, schemas: Schemas, limits: RegistrySettings) -> None:
        """`limits`: those of bodies."""
        self._schemas = schemas
        self._limits = limits

    def add_to(self, router: web.UrlDispatcher, prefix: str) -> None:
        """Register the handlers under `prefix`."""
        subject = f"{prefix}/subjects/{{subject}}"
        router.add_get(f"{prefix}/subjects", self.list)
        router.add_post(subject, self.lookup)
        router.add_delete(subject, self.delete)
        router.add_get(f"{subject}/metadata", self.latest_with_metadata)
        router.add_get(f"{subject}/versions", self.versions)
        router.add_post(f"{subject}/versions", self.register)
        router.add_get(f"{subject}/versions/{{version}}", self.version)
        router.add_delete(f"{subject}/versions/{{version}}", self.delete_version)
        router.add_get(f"{subject}/versions/{{version}}/schema", self.text)
        router.add_get(f"{subject}/versions/{{version}}/referencedby", self.referrers)

    async def list(self, request: web.Request) -> web.Response:
        """List the subjects, one page."""
        offset, limit = requests.page_of(request)
        prefix, deletion = requests.prefix_of(request), requests.deletion_of(request)
        return answer(
            request, await self._schemas.subjects(principal_of(request), prefix, deletion, offset=offset, limit=limit)
        )

    async def lookup(self, request: web.Request) -> web.Response:
        """Find the version of a subject that has the schema in the body."""
        found = await self._schemas.lookup(
            principal_of(request),
            requests.subject_of(request),
            await requests.draft_of(request, self._limits),
            is_normalized=requests.flag(request, "normalize"),
            with_deleted=requests.flag(request, "deleted"),
        )
        return await self._shown(request, found)

    async def register(self, request: web.Request) -> web.Response:
        """Register the schema in the body as a version of the subject and return its id."""
        made = await self._schemas.register(
            principal_of(request),
            requests.subject_of(request),
            await requests.draft_of(request, self._limits),
            is_normalized=requests.flag(request, "normalize"),
        )
        return answer(request, {"id": made.schema.id, "version": made.number, "guid": str(made.schema.guid)})

    async def versions(self, request: web.Request) -> web.Response:
        """List a subject's version numbers."""
        offset, limit = requests.page_of(request)
        subject, deletion = requests.subject_of(request), requests.deletion_of(request)
        return answer(
            request, await self._schemas.versions(principal_of(request), subject, deletion, offset=offset, limit=limit)
        )

    async def version(self, request: web.Request) -> web.Response:
        """Get one version with its schema."""
        return await self._shown(request, await self._version(request))

    async def text(self, request: web.Request) -> web.Response:
        """Get the schema text of one version without a wrapper."""
        found = await self._version(request)
        return text_answer(request, await formatted(self._schemas, found.schema, request))

    async def latest_with_metadata(self, request: web.Request) -> web.Response:
        """Get the latest version whose metadata has the given properties (pairs of `key` and `value`)."""
        keys, values = request.query.getall("key", []), request.query.getall("value", [])
        if len(keys) != len(values) or not keys:
            raise requests.BadRequest("expected as many values as keys: ?key=a&value=1&key=b&value=2")
        properties, with_deleted = dict(zip(keys, values, strict=True)), requests.flag(request, "deleted")
        subject = requests.subject_of(request)
        found = await self._schemas.latest_with_metadata(
            principal_of(request), subject, properties, with_deleted=with_deleted
        )
        return await self._shown(request, found)

    async def referrers(self, request: web.Request) -> web.Response:
        """List the ids of the schemas that reference a version."""
        subject, version = requests.subject_of(request), requests.version_of(request)
        found = await self._schemas.referrers(principal_of(request), subject, version)
        return answer(request, requests.paged(request, found))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a subject and return the deleted version numbers."""
        is_permanent = requests.flag(request, "permanent")
        numbers = await self._schemas.delete_subject(
            principal_of(request), requests.subject_of(request), is_permanent=is_permanent
        )
        return answer(request, numbers)

    async def delete_version(self, request: web.Request) -> web.Response:
        """Delete a version and return its number."""
        subject, version = requests.subject_of(request), requests.version_of(request)
        is_permanent = requests.flag(request, "permanent")
        return answer(
            request,
            await self._schemas.delete_version(principal_of(request), subject, version, is_permanent=is_permanent),
        )

    async def _version(self, request: web.Request) -> SchemaVersion:
        subject, version = requests.subject_of(request), requests.version_of(request)
        return await self._schemas.version(
            principal_of(request), subject, version, with_deleted=requests.flag(request, "deleted")
        )

    async def _shown(self, request: web.Request, found: SchemaVersion) -> web.Response:
        return answer(request, shown_version(found, await formatted(self._schemas, found.schema, request)))

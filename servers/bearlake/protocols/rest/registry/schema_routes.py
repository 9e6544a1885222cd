"""Routes for schemas by id and guid, and for lists of schemas."""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from bearlake.metadata.schemas import Deletion, SubjectVersion
from bearlake.protocols.rest.registry import requests
from bearlake.protocols.rest.registry.answers import answer, shown_schema, shown_version, text_answer
from bearlake.serving.http.login import principal_of
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Schema, SchemaType
from bearlake.streams.schemas.problems import SchemaNotFound
from bearlake.streams.schemas.service import Schemas

TYPE_NAMES = [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]


class SchemaRoutes:
    """The handlers under `/schemas` and `/contexts`."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def add_to(self, router: web.UrlDispatcher, prefix: str) -> None:
        """Register the handlers under `prefix`."""
        router.add_get(f"{prefix}/schemas", self.list)
        router.add_get(f"{prefix}/schemas/types", self.types)
        router.add_get(f"{prefix}/schemas/ids/{{id}}", self.by_id)
        router.add_get(f"{prefix}/schemas/ids/{{id}}/schema", self.text_by_id)
        router.add_get(f"{prefix}/schemas/ids/{{id}}/subjects", self.subjects)
        router.add_get(f"{prefix}/schemas/ids/{{id}}/versions", self.versions)
        router.add_get(f"{prefix}/schemas/guids/{{guid}}", self.by_guid)
        router.add_get(f"{prefix}/schemas/guids/{{guid}}/ids", self.ids_of_guid)
        if not prefix:
            router.add_get("/contexts", self.contexts)

    async def list(self, request: web.Request) -> web.Response:
        """List schemas with their versions, one page."""
        offset, limit = requests.page_of(request)
        deletion, latest = requests.deletion_of(request), requests.flag(request, "latestOnly")
        prefix = requests.prefix_of(request)
        found = await self._schemas.all_versions(
            principal_of(request), prefix, deletion, is_latest_only=latest, offset=offset, limit=limit
        )
        return answer(request, [shown_version(version) for version in found])

    async def types(self, request: web.Request) -> web.Response:
        """List the supported schema formats."""
        return answer(request, TYPE_NAMES)

    async def by_id(self, request: web.Request) -> web.Response:
        """Get a schema by id; with `fetchMaxId` also the largest id."""
        subject = requests.subject_asked(request)
        schema = await self._schemas.schema(principal_of(request), requests.id_of(request), subject)
        shown = shown_schema(schema, await formatted(self._schemas, schema, request))
        if requests.flag(request, "fetchMaxId"):
            shown["maxId"] = await self._schemas.last_id(principal_of(request), subject)
        return answer(request, shown)

    async def text_by_id(self, request: web.Request) -> web.Response:
        """Get a schema's text without a wrapper."""
        schema = await self._schemas.schema(
            principal_of(request), requests.id_of(request), requests.subject_asked(request)
        )
        return text_answer(request, await formatted(self._schemas, schema, request))

    async def subjects(self, request: web.Request) -> web.Response:
        """List the subjects that use a schema."""
        found = dict.fromkeys(names.shown(version.subject) for version in await self._usages(request))
        return answer(request, requests.paged(request, [*found]))

    async def versions(self, request: web.Request) -> web.Response:
        """List the versions that use a schema."""
        found = [
            {"subject": names.shown(version.subject), "version": version.number}
            for version in await self._usages(request)
        ]
        return answer(request, requests.paged(request, found))

    async def by_guid(self, request: web.Request) -> web.Response:
        """Get a schema by guid."""
        schema = (await self._by_guid(request))[0]
        return answer(request, shown_schema(schema, await formatted(self._schemas, schema, request)))

    async def ids_of_guid(self, request: web.Request) -> web.Response:
        """List the ids of a guid's schema, by context."""
        found = await self._by_guid(request)
        return answer(request, [{"context": schema.context, "id": schema.id} for schema in found])

    async def contexts(self, request: web.Request) -> web.Response:
        """List the contexts."""
        offset, limit = requests.page_of(request)
        return answer(request, list(await self._schemas.contexts(principal_of(request), offset=offset, limit=limit)))

    async def _usages(self, request: web.Request) -> Sequence[SubjectVersion]:
        with_deleted = requests.deletion_of(request) is not Deletion.LIVE
        return await self._schemas.usages(
            principal_of(request), requests.id_of(request), requests.subject_asked(request), with_deleted=with_deleted
        )

    async def _by_guid(self, request: web.Request) -> Sequence[Schema]:
        text = request.match_info["guid"]
        try:
            guid = UUID(text)
        except ValueError as error:
            raise SchemaNotFound(f"Schema {text[:64]} not found") from error
        return await self._schemas.by_guid(principal_of(request), guid)


async def formatted(schemas: Schemas, schema: Schema, request: web.Request) -> str:
    """Return the schema's text in the query's format: `serialized` (Protobuf), `resolved` (Avro), else as stored."""
    format_ = request.query.get("format", "")
    if format_ in ("serialized", "resolved"):
        return await schemas.exported(principal_of(request), schema, format_)
    return schema.text

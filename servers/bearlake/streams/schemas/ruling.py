"""Changes configs and modes: decides on one state of the subject; the store applies a change only if the state is unchanged."""

from bearlake.metadata.schemas import GLOBAL_SUBJECT, Deletion, SchemaStore, SubjectKey, SubjectState
from bearlake.streams.schemas import names, rules
from bearlake.streams.schemas.model import Document, Mode
from bearlake.streams.schemas.problems import NotPermitted
from bearlake.streams.schemas.settings import SchemasSettings


class Ruler:
    """Applies changes that the mode permits. All methods raise `Conflict` after a concurrent change."""

    def __init__(self, store: SchemaStore, settings: SchemasSettings) -> None:
        self._store = store
        self._settings = settings

    async def set_config(self, key: SubjectKey, update: Document) -> Document:
        """Change fields of a config; returns the applied fields. Raises `NotPermitted`."""
        state = await self._writable(key)
        stored = rules.updated(state.rules[0].config, update, self._settings.config_bytes_max)
        await self._store.set_config(key, stored, revision=state.revision)
        return rules.loaded(stored) or {}

    async def unset_config(self, key: SubjectKey) -> None:
        """Unset a config. Raises `NotPermitted`."""
        state = await self._writable(key)
        await self._store.set_config(key, None, revision=state.revision)

    async def set_mode(self, key: SubjectKey, mode: Mode | None, *, is_forced: bool = False) -> None:
        """Set a mode, or unset it (None). Raises `NotPermitted`."""
        state = await self._store.subject(key)
        if mode is Mode.IMPORT and not is_forced and await self._has_versions(state):
            raise NotPermitted("Cannot import since found existing subjects")
        await self._store.set_mode(key, None if mode is None else mode.value, revision=state.revision)

    async def _writable(self, key: SubjectKey) -> SubjectState:
        state = await self._store.subject(key)
        if rules.mode_in_scope(state) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise NotPermitted(f"Subject {names.shown(state.subject)} is in read-only mode")
        return state

    async def _has_versions(self, state: SubjectState) -> bool:
        key = state.subject
        if key.name != GLOBAL_SUBJECT:
            return bool(state.versions)
        context = None if key == names.GLOBAL else key.context
        return bool(await self._store.subjects(context=context, deletion=Deletion.ALL, limit=1))

"""The rules of `bearlake doctor` without stores: clocks, file systems, layouts, PostgreSQL's facts."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.app.doctor import clocks, examination, machine, objects
from bearlake.errors import Denied, Unavailable
from bearlake.metadata.inspection import Verdict, layout_finding
from bearlake.metadata.postgresql import inspection
from bearlake.metadata.sqlite.inspection import inspect_sqlite
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.store_copy import RESTORING
from bearlake.objects import ObjectStore
from bearlake.objects.open import open_store
from bearlake.settings.document import load_document


@pytest.mark.parametrize(
    ("difference_ms", "verdict"),
    [(0, Verdict.OK), (-1_900, Verdict.OK), (2_300, Verdict.WARNING), (-400_000, Verdict.FAILURE)],
)
def test_clocks_are_compared_within_their_uncertainty(difference_ms: int, verdict: Verdict) -> None:
    seen = clocks.Clocks()
    seen.add("metadata store", 1_000_000 + difference_ms, 999_900, 1_000_100)

    (found,) = seen.findings()

    assert found.verdict is verdict
    assert bool(found.advice) == (verdict is not Verdict.OK)


def test_a_slow_answer_does_not_count_as_a_wrong_clock() -> None:
    seen = clocks.Clocks()
    seen.add("slow", 1_004_000, 995_000, 1_005_000)

    assert seen.findings()[0].verdict is Verdict.OK
    assert seen.findings()[0].detail.startswith("agrees with this machine's clock, ± ")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite:///lake/metadata.db", "disk is full"),
        ("file:///lake/objects", "disk is full"),
        ("postgresql://db.example/lake", "firewall"),
    ],
)
def test_advice_about_a_store_that_does_not_answer_fits_its_place(url: str, advice: str) -> None:
    assert advice in examination.advice_for(Unavailable("No space left on device"), url)


@pytest.mark.parametrize(
    ("present", "verdict"),
    [(0, Verdict.WARNING), (7, Verdict.OK), (6, Verdict.WARNING), (4, Verdict.FAILURE), (8, Verdict.FAILURE)],
)
def test_layouts_are_compared_with_those_of_this_program(present: int, verdict: Verdict) -> None:
    assert layout_finding(present, 7, 5).verdict is verdict


def test_a_store_that_a_restore_has_left_is_known() -> None:
    assert layout_finding(RESTORING, 7, 5).advice == "run `bearlake restore` again"


def test_the_file_system_of_a_folder_is_known(tmp_path: Path) -> None:
    assert machine.file_system(tmp_path)
    assert machine.file_system(Path("/proc")) == "proc"


def test_folders_inside_others_are_examined_once(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    options = {
        "metadata.url": (f"sqlite://{tmp_path}/metadata.db", "test"),
        "object_store.url": (f"file://{tmp_path}/objects", "test"),
    }
    settings = load_document(None, {}, options).settings

    assert machine.local_folders(settings) == [tmp_path]


def test_a_path_with_two_slashes_is_read_as_servers_read_it(tmp_path: Path) -> None:
    """`sqlite:////folder/metadata.db` has such a path."""
    with sqlite3.connect(tmp_path / "metadata.db") as connection:
        connection.execute("CREATE TABLE other (number INTEGER)")
    connection.close()

    found = inspect_sqlite(Path(f"/{tmp_path}/metadata.db"), SqliteSettings())

    assert "content" not in {finding.subject for finding in found.findings if finding.verdict is Verdict.FAILURE}


async def test_objects_are_examined_in_memory_and_settings_that_lose_records_are_named() -> None:
    settings = load_document(None, {}, {"object_store.url": ("memory:///", "test")}).settings

    found = {finding.subject: finding for finding in await objects.examine(settings, clocks.Clocks(), 10.0)}

    assert {"PUT", "GET", "conditional PUT", "LIST", "DELETE", "durability"} <= set(found)
    assert found["DELETE"].verdict is Verdict.OK


class Overwriting:
    """A store whose PUT replaces objects, as one without conditional writes would."""

    def __init__(self) -> None:
        self._store: ObjectStore = open_store("memory:///")

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def put(self, key: str, parts: list[bytes]) -> None:
        await self._store.delete([key])
        await self._store.put(key, parts)


class Undeletable(Overwriting):
    """A store that refuses deletions."""

    async def put(self, key: str, parts: list[bytes]) -> None:
        await self._store.put(key, parts)

    async def delete(self, keys: list[str]) -> None:
        raise Denied("no right to delete")


@pytest.mark.parametrize(("store", "subject"), [(Overwriting(), "conditional PUT"), (Undeletable(), "delete")])
async def test_stores_that_break_a_promise_are_failures(
    store: Overwriting, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "open_store", lambda *_: store)
    settings = load_document(None, {}, {"object_store.url": ("memory:///", "test")}).settings

    found = {finding.subject: finding for finding in await objects.examine(settings, clocks.Clocks(), 10.0)}

    assert found[subject].verdict is Verdict.FAILURE
    assert found[subject].advice


def test_postgresql_facts_are_rated() -> None:
    good = inspection.Facts(
        version=15,
        synchronous_commit="on",
        standby_names="ANY 1 (*)",
        standby_count=1,
        sees_standbys=True,
        has_fsync=True,
        has_full_page_writes=True,
        has_autovacuum=True,
        connection_count_max=100,
        connection_count=10,
        is_standby=False,
        may_create=True,
        owns_schema=True,
        size_bytes=1,
        user="bear",
    )
    bad = {
        "version": 13,
        "synchronous_commit": "remote_write",
        "standby_count": 0,
        "has_fsync": False,
        "is_standby": True,
    }

    assert {found.verdict for found in inspection.rated(good, "bearlake", 33)} == {Verdict.OK}
    for name, value in bad.items():
        verdicts = [found.verdict for found in inspection.rated(replace(good, **{name: value}), "bearlake", 33)]
        assert verdicts.count(Verdict.FAILURE) == 1, name
    for name, value in {"has_full_page_writes": False, "has_autovacuum": False, "standby_names": ""}.items():
        verdicts = [found.verdict for found in inspection.rated(replace(good, **{name: value}), "bearlake", 33)]
        assert verdicts.count(Verdict.WARNING) == 1, name
    hidden = inspection.rated(replace(good, sees_standbys=False), "bearlake", 33)
    assert Verdict.SKIPPED in {found.verdict for found in hidden}

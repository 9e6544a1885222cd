"""From a URL to a metadata store."""

import sys
from pathlib import Path

import pytest

import bearlake.metadata
from bearlake.errors import Invalid, Unavailable
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.settings import SqliteSettings


async def test_a_sqlite_url_names_a_file(tmp_path: Path) -> None:
    store = await open_metadata(f"sqlite://{tmp_path}/my%20store.db", SqliteSettings(synchronous="OFF"))
    await store.close()

    assert (tmp_path / "my store.db").exists()


async def test_a_memory_url_names_a_store_of_its_own() -> None:
    first, second = await open_metadata("memory:///"), await open_metadata("memory:///")

    assert await first.cluster_id() != await second.cluster_id()
    await first.close()
    await second.close()


@pytest.mark.parametrize("url", ["sqlite://host/path", "sqlite:///", "mysql://user:secret@host/name", "file.db", ""])
async def test_urls_that_name_no_store_are_invalid(url: str) -> None:
    with pytest.raises(Invalid) as raised:
        await open_metadata(url)

    assert "secret" not in str(raised.value)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not exist"):
        await open_metadata(f"sqlite://{tmp_path}/none/metadata.db")


async def test_settings_of_another_store_are_invalid(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="SqliteSettings"):
        await open_metadata(f"sqlite://{tmp_path}/metadata.db", {"synchronous": "FULL"})


async def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("bearlake.metadata.postgresql")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(bearlake.metadata, "postgresql", raising=False)  # an import sets it to another module
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(Invalid, match=r"bearlake\[postgresql\]") as raised:
        await open_metadata("postgresql://user:secret@host/name")
    assert "secret" not in str(raised.value)

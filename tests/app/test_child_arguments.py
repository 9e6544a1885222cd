"""Command lines of child processes: every user of the machine can read them, so they contain no URL of a store."""

from pathlib import Path

import pytest

from bearlake.app import processes, worker
from bearlake.app.children import store_variables
from bearlake.app.lake_settings import LakeOptions, lake_settings
from bearlake.app.options import UpOptions
from bearlake.settings.document import load_document
from bearlake.settings.load import Loaded

SECRET = "postgresql://lake:hunter2@db/lake"


@pytest.fixture
def settings():
    options = {
        "metadata.url": (SECRET, "test"),
        "object_store.url": ("s3://bucket?aws_secret_access_key=hunter2", "test"),
        "tables.catalog_url": (SECRET, "test"),
    }
    loaded: Loaded = load_document(None, {}, options)
    return loaded.settings


def test_no_password_is_an_argument_and_children_find_the_stores(tmp_path: Path, settings) -> None:
    options = UpOptions(
        data_dir=tmp_path, config=None, options={}, ready_file=None, process_count=2, has_compactor=True, has_tour=False,
        exits_after_tour=False,
    )  # fmt: skip

    for arguments, environment in (
        (processes._options(settings, options, 1, tmp_path / "r", 0), processes._environment(settings)),  # noqa: SLF001
        (worker._options(settings, options), worker._environment(settings)),  # noqa: SLF001
    ):
        assert "hunter2" not in " ".join(arguments)
        read = load_document(None, environment).settings
        assert (read.metadata.url, read.object_store.url) == (settings.metadata.url, settings.object_store.url)
        assert read.tables.catalog_url == settings.tables.catalog_url


def test_the_tour_finds_the_stores(tmp_path: Path, settings) -> None:
    given = LakeOptions(data_dir=tmp_path, config=None, options={})

    assert lake_settings(given, store_variables(settings)).metadata.url == SECRET

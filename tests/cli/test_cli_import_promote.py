"""`bearlake import promote`: an output that is closed, and a store that fails, in the middle of several streams."""

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bearlake.cli import importing
from bearlake.cli.importing import import_
from bearlake.errors import BearlakeError, Unavailable
from bearlake.importing import promotion
from bearlake.streams import configs

NAMES = ("bills", "orders", "visits")


class Catalog:
    """Streams that are being imported; the promotion of the stream `failing` fails."""

    def __init__(self, failing: str = "") -> None:
        self.promoted: list[str] = []
        self._failing = failing

    async def resolve(self, name: str) -> Any:
        stream = SimpleNamespace(name=name, configs={configs.IMPORT_SOURCE: f"kafka:far/{name}"})
        return SimpleNamespace(name=name, stream=stream)

    async def change(self, stream: Any, _: object) -> None:
        if stream.name == self._failing:
            raise Unavailable("the store is gone")
        self.promoted.append(stream.name)


@pytest.fixture
def promote(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command on a catalog; returns its exit code."""

    def run(catalog: Any, *words: str) -> int:
        async def promoted(_: object, names: Sequence[str], show: Callable[[promotion.Promoted], None]) -> Any:
            return await promotion.promote(catalog, names, show)

        monkeypatch.setattr(importing, "chosen", lambda *_, **__: None)
        monkeypatch.setattr(importing, "server_module", lambda *_: SimpleNamespace(promote=promoted))
        with import_.make_context("import", ["promote", *words]) as context:
            code: int = import_.invoke(context)
        return code

    return run


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError("disk full"), UnicodeError("no ASCII")])
async def test_an_output_that_fails_does_not_stop_a_promotion(error: Exception) -> None:
    catalog: Any = Catalog()
    shown = []

    def show(stream: promotion.Promoted) -> None:
        shown.append(stream.name)
        raise error

    with pytest.raises(type(error)):
        await promotion.promote(catalog, NAMES, show)

    assert catalog.promoted == list(NAMES)
    assert shown == ["bills"]


async def test_a_failure_of_a_store_counts_more_than_a_closed_output() -> None:
    catalog: Any = Catalog("visits")

    def show(_: promotion.Promoted) -> None:
        raise BrokenPipeError

    with pytest.raises(Unavailable):
        await promotion.promote(catalog, NAMES, show)

    assert catalog.promoted == ["bills", "orders"]


async def test_a_stream_that_is_named_twice_is_promoted_and_shown_once() -> None:
    catalog: Any = Catalog()

    done = await promotion.promote(catalog, ["orders", "bills", "orders"])

    assert [stream.name for stream in done] == catalog.promoted == ["orders", "bills"]


def test_json_has_what_was_promoted_before_a_failure(promote: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unavailable):
        promote(Catalog("visits"), *NAMES, "--json")

    assert json.loads(capsys.readouterr().out) == [
        {"name": "bills", "source": "kafka:far/bills"},
        {"name": "orders", "source": "kafka:far/orders"},
    ]


def test_json_of_a_promotion_that_did_nothing_is_only_its_error(
    promote: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BearlakeError):
        promote(Catalog("bills"), *NAMES, "--json")

    assert capsys.readouterr().out == ""


def test_json_of_a_promotion_that_succeeds_has_all_streams(promote: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert promote(Catalog(), *NAMES, "--json") == 0

    assert [stream["name"] for stream in json.loads(capsys.readouterr().out)] == list(NAMES)

"""The HTTP API of a source: an answer that does not end, in whatever part, gives up its thread and its connection."""

import itertools
import ssl
from types import SimpleNamespace

import pytest

from bearlake import http_answers
from bearlake.errors import Unavailable
from bearlake.importing import http_source
from bearlake.importing.http_source import HttpSource
from fixtures.http_answers import DRIPPED, answering

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("part", DRIPPED)
async def test_an_answer_that_comes_byte_by_byte_ends_in_time(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 20)
    for module in (http_source, http_answers):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    with answering(DRIPPED[part], is_endless=True) as url:
        source = HttpSource(
            "the registry",
            url,
            lambda *_: "",
            ssl.create_default_context(),
            login_setting="x",
            timeout_ms=45_000,
            bytes_max=1 << 20,
        )
        with pytest.raises(Unavailable, match=r"did not end in time|HTTP 503"):
            await source.get("subjects")

"""The tour does not wait for compaction in silence."""

import json
import time

import pytest
from typing_extensions import override

from bearlake.app.tour import COMPACTION_TIMEOUT_S, Admin, Produced, TourFailed, await_table


class Uncompacted(Admin):
    """The admin API of a server without a compaction worker."""

    @override
    def get(self, path: str) -> bytes:
        return json.dumps({"partitions": [{"partition": 0, "compacted_offset": 7}]}).encode()


def test_a_tour_says_that_it_waits_and_gives_up_at_its_limit() -> None:
    long_ago_s = time.monotonic() - COMPACTION_TIMEOUT_S - 1
    said: list[str] = []

    with pytest.raises(TourFailed, match=r"the records are not in the table after \d+ s"):
        await_table(
            Uncompacted("http://127.0.0.1:1"), Produced(start={0: 0}, end={0: 10}, last_s=long_ago_s), said.append
        )
    assert said == ["  compact   not yet; the tour waits for it, 300 s at most"]

"""Values of very many rows are made in turns of the event loop."""

from typing import Any

from bearlake.metadata.postgresql import turns
from fixtures.turns import CountingTurns


async def test_values_of_many_rows_are_made_in_turns_and_complete() -> None:
    rows: list[Any] = [(number, str(number)) for number in range(3 * turns.AT_ONCE + 1)]
    counting = CountingTurns()

    def item(row: Any) -> tuple[int, str]:
        counting.tick()
        return row  # type: ignore[no-any-return]

    found = await turns.keyed(rows, item)

    assert list(found.items()) == rows
    assert counting.most == turns.AT_ONCE
    assert await turns.keyed([], item) == {}

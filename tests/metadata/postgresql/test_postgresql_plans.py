"""Plans of statements over all partitions of a transaction: the work grows with their number, not with its square (decision 317).

Joins by hash and by merge are off, since the planner does not know the length of an array. An anti join then compares each with each.
"""

import re
from typing import Any

from bearlake.metadata.postgresql.layout import available

ABORTED = r"with joined as \(\n\s+update bearlake\.aborted_transaction.*?;"
VALUES = dict.fromkeys(("partitions", "bases", "firsts"), "'{1, 2}'::bigint[]") | {"ended": "1::bigint"}


async def test_an_abort_right_behind_another_looks_each_partition_up(postgresql_backend: Any) -> None:
    store = await postgresql_backend.open()
    (statement,) = [found for script in available().functions for found in re.findall(ABORTED, script, re.DOTALL)]
    for name, value in VALUES.items():
        statement = re.sub(rf"\b{name}\b", value, statement)
    rows = await store._database.rows(f"explain {statement.rstrip(';')}")
    plan = "\n".join(row[0] for row in rows)

    assert "hashed SubPlan" in plan
    assert "Anti Join" not in plan

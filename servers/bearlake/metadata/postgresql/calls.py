"""Calls of the stored functions, with parameters by name.

`functions/*.sql` say what each function promises and what its parameters are. `tests/metadata/postgresql/test_postgresql_calls.py`
compares every call in this package with them.
"""

from functools import lru_cache

from bearlake.metadata.model import Lease


def call(function: str, columns: str = "*", /, **parameters: object) -> tuple[str, *tuple[object, ...]]:
    """Return the statement that calls `function`, and its values: the arguments of `Database.rows`, `row` and `value`.

    `parameters` are all parameters of the function, without their prefix `p_`. `columns` are those of the result.
    """
    return _statement(function, columns, tuple(parameters)), *parameters.values()


def of_lease(lease: Lease) -> dict[str, object]:
    """Return the parameters of functions that check a lease."""
    return {
        "lease": lease.name,
        "epoch": lease.epoch,
        "node_id": lease.holder.node_id,
        "server_epoch": lease.holder.epoch,
    }


@lru_cache(maxsize=256)
def _statement(function: str, columns: str, names: tuple[str, ...]) -> str:
    parameters = ", ".join(f"p_{name} => ${number}" for number, name in enumerate(names, 1))
    return f"select {columns} from bearlake.{function}({parameters})"

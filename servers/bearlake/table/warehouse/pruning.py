"""The part of a scan's filter by which files can be left out.

Engines write values in several ways (bytes as hexadecimal digits or as text, timestamps as text or as numbers). A comparison is used only
where all of them mean the same; any other one counts as one that every row passes. Engines apply the whole filter to the rows they read.

Source: Apache Iceberg REST specification, `Expression`; Java's `ExpressionParser`; PyIceberg 0.12, `expressions`.
"""

from typing import Any, Final

from pydantic import TypeAdapter
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from bearlake.table.warehouse.model import invalid

_DEPTH_MAX: Final = 100
"""Levels of a filter: what is deeper leaves no file out. PyIceberg visits an expression recursively."""
_OF_NULLS: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_OF_ONE: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "starts-with", "not-starts-with"})
_OF_SEVERAL: Final = frozenset({"in", "not-in"})
_CONSTANTS: Final = {"true": True, "false": False}
_VALUES: Final[dict[type[IcebergType], tuple[type, ...]]] = {
    BooleanType: (bool,),
    IntegerType: (int,),
    LongType: (int,),
    DoubleType: (int, float),  # not float: its values are shorter than JSON's
    StringType: (str,),
    DateType: (int, str),
    TimestampType: (int, str),
    TimestamptzType: (int, str),
    DecimalType: (str,),
}
_PARSER: Final = TypeAdapter(BooleanExpression)


def pruning_filter(found: Any, schema: Schema, *, is_case_sensitive: bool) -> BooleanExpression:
    """Return an expression that is true wherever the filter (Any: JSON; None: all rows) is.

    Raises:
        Refused: it is no filter, or names a column that the schema does not have.
    """
    part = _Filter(schema, is_case_sensitive).part(found, is_positive=True, depth=0) if found is not None else True
    try:
        parsed = _PARSER.validate_python(part)
        if not isinstance(parsed, AlwaysTrue):
            bind(schema, parsed, is_case_sensitive)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return AlwaysTrue()  # values that the columns cannot have
    return parsed


class _Filter:
    """Replaces what cannot be used."""

    def __init__(self, schema: Schema, is_case_sensitive: bool) -> None:
        self._schema = schema
        self._is_case_sensitive = is_case_sensitive

    def part(self, node: Any, *, is_positive: bool, depth: int) -> Any:
        """Return the node with `true` in place of what cannot be used, and `false` below a negation."""
        if isinstance(node, bool):
            return node
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            raise invalid("filter: expected an expression")
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if depth > _DEPTH_MAX:
            return is_positive
        if kind == "not":
            return {"type": kind, "child": self.part(node.get("child"), is_positive=not is_positive, depth=depth + 1)}
        if kind in ("and", "or"):
            left, right = (
                self.part(node.get(side), is_positive=is_positive, depth=depth + 1) for side in ("left", "right")
            )
            return {"type": kind, "left": left, "right": right}
        return node if self._is_usable(kind, node) else is_positive

    def _is_usable(self, kind: str, node: dict[str, Any]) -> bool:
        term = node.get("term")
        if isinstance(term, dict) and term.get("type") == "reference":
            term = term.get("term")
        if not isinstance(term, str):
            return False  # a transform
        try:
            column = self._schema.find_field(term, case_sensitive=self._is_case_sensitive).field_type
        except ValueError as error:
            raise invalid(f"filter: Cannot find field {term[:200]!r}") from error
        if node["term"] is not term:
            return False
        if kind in _OF_NULLS:
            return column.is_primitive
        values = node.get("values") if kind in _OF_SEVERAL else [node.get("value")] if kind in _OF_ONE else None
        accepted = _VALUES.get(type(column))
        return isinstance(values, list) and accepted is not None and all(type(value) in accepted for value in values)

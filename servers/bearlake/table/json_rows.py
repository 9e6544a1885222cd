"""Rows of declared columns as JSON texts: an object per row, with the columns' names. Column by column, without Python objects.

| declared | Arrow | text |
|---|---|---|
| boolean | bool | true |
| int, long | whole numbers that fit | 7 |
| float, double | floats, whole numbers that they hold; not NaN or infinite | 1.5 |
| decimal | decimals and whole numbers that fit | 12.30 |
| string; binary | text; bytes | "…"; in base64 |
| date | dates | "2026-11-28" |
| timestamp, timestamptz | timestamps without and with a zone; parts of a microsecond are cut off | "2026-11-28 09:30:00.5", with a Z |
| uuid | 16 bytes, or text | with hyphens |
| struct, list, map | the same | an object, an array, an object |

A null is `null`. Importing this module needs pyarrow; it raises pyarrow's errors for values that cannot be cast.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.errors import Invalid, TooLarge
from bearlake.table.column_tree import Column, ColumnType, ListOf, MapOf, StructOf

_NULL: Final = "null"
_SPECIAL: Final = r'["\\\x00-\x1f]'
_CONTROL: Final = r"[\x00-\x1f]"
_INTEGER_DIGITS: Final = 20
"""Digits of the largest whole number of Arrow."""
_SLOT_BYTES: Final = 6
"""What a value counts beside its name: `null` and the marks around it."""


def texts_of(fields: Sequence[tuple[Column, pa.Array]], count: int, bytes_max: int) -> pa.BinaryArray:
    """Return `count` rows as texts.

    Raises:
        Invalid: a column is of another type than its declared one, or a value does not fit.
        TooLarge: the texts would have more than `bytes_max` bytes, whatever the values are.
    """
    least = sum(_least_bytes(column.name, column.type, array) for column, array in fields)
    if least > bytes_max:
        raise TooLarge("the values of the rows", least, bytes_max)
    columns = [(column.name, _texts(column.type, array, column.name)) for column, array in fields]
    return _objects(columns, count).cast(pa.binary())


def _least_bytes(name: str, type_: ColumnType, array: pa.Array) -> int:
    """Return what the texts of a column have at least: names stand in each row, so a few bytes can become many."""
    found = len(array) * (len(name) + _SLOT_BYTES)
    if isinstance(type_, StructOf) and pa.types.is_struct(array.type):
        for field in type_.fields:
            if (at := array.type.get_field_index(field.name)) >= 0:
                found += _least_bytes(field.name, field.type, array.field(at))
    elif isinstance(type_, ListOf) and _is_list(array.type):
        found += _least_bytes("", type_.element, array.values)
    elif isinstance(type_, MapOf) and pa.types.is_map(array.type):
        found += _least_bytes("", type_.value, array.items)
    return found


def _objects(columns: Sequence[tuple[str, pa.Array]], count: int) -> pa.StringArray:
    """Return an object per row."""
    if not columns:
        return pa.array(["{}"] * count, pa.string())
    parts: list[pa.Array | str] = []
    for at, (name, texts) in enumerate(columns):
        parts += [f"{',' if at else '{'}{json.dumps(name, ensure_ascii=False)}:", texts]
    return pc.binary_join_element_wise(*parts, "}", "")


def _texts(type_: ColumnType, array: pa.Array, path: str) -> pa.StringArray:
    """Return the text of each value."""
    if pa.types.is_null(array.type):
        return pa.array([_NULL] * len(array), pa.string())
    if isinstance(type_, StructOf):
        found = _of_structs(type_, array, path)
    elif isinstance(type_, ListOf):
        found = _of_lists(type_, array, path)
    elif isinstance(type_, MapOf):
        found = _of_maps(type_, array, path)
    else:
        found = _of_leaves(type_, array, path)
    return pc.fill_null(pc.if_else(array.is_valid(), found, None), _NULL)


def _of_structs(type_: StructOf, array: pa.Array, path: str) -> pa.StringArray:
    if not pa.types.is_struct(array.type):
        raise _mismatch(path, "struct", array)
    known = {field.name: field for field in type_.fields}
    names = [array.type.field(at).name for at in range(array.type.num_fields)]
    if unknown := sorted(set(names) - set(known)):
        raise Invalid(f"column {path}: its field {unknown[0]!r} is not declared")
    if len(set(names)) < len(names):
        raise Invalid(f"column {path}: two of its fields have one name")
    fields = array.flatten()  # null where the struct is: anything may stand behind a null
    columns = [(name, _texts(known[name].type, fields[at], f"{path}.{name}")) for at, name in enumerate(names)]
    return _objects(columns, len(array))


def _of_lists(type_: ListOf, array: pa.Array, path: str) -> pa.StringArray:
    if not _is_list(array.type):
        raise _mismatch(path, "list", array)
    return _joined("[", _texts(type_.element, array.values, f"{path}.element"), array.offsets, "]")


def _of_maps(type_: MapOf, array: pa.Array, path: str) -> pa.StringArray:
    if not pa.types.is_map(array.type):
        raise _mismatch(path, "map", array)
    keys = _texts(type_.key, array.keys, f"{path}.key")
    values = _texts(type_.value, array.items, f"{path}.value")
    return _joined("{", pc.binary_join_element_wise(keys, values, ":"), array.offsets, "}")


def _joined(opening: str, texts: pa.StringArray, offsets: pa.Array, closing: str) -> pa.StringArray:
    """Return the texts between each two offsets, with commas between them."""
    lists = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), texts)
    return pc.binary_join_element_wise(opening, pc.binary_join(lists.cast(pa.list_(pa.string())), ","), closing, "")


def _of_leaves(type_: str, array: pa.Array, path: str) -> pa.StringArray:
    kind = "decimal" if type_.startswith("decimal(") else type_
    is_known, write = _LEAVES[kind]
    if not any(is_type(array.type) for is_type in is_known):
        raise _mismatch(path, type_, array)
    try:
        return write(type_, array)
    except Invalid as error:
        raise Invalid(f"column {path}: {error}") from error
    except pa.ArrowException as error:
        raise Invalid(f"column {path} is {type_}: {error}") from error


def _mismatch(path: str, expected: str, array: pa.Array) -> Invalid:
    return Invalid(f"column {path} is declared as {expected}, which a column of type {array.type} cannot be")


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found))


# -- values that are not nested ----------------------------------------------------------------------------------


def _numbers(type_: str, array: pa.Array) -> pa.StringArray:
    return array.cast(_NUMBERS[type_]).cast(pa.string())


def _reals(type_: str, array: pa.Array) -> pa.StringArray:
    found = array.cast(_NUMBERS[type_])
    if pc.all(pc.is_finite(found)).as_py() is False:
        raise Invalid("NaN, infinite and too large numbers are not values of JSON")
    return found.cast(pa.string())


def _decimals(type_: str, array: pa.Array) -> pa.StringArray:
    precision, scale = map(int, type_[len("decimal(") : -1].split(","))
    if pa.types.is_integer(array.type):  # a cast of whole numbers asks for room for the largest of their type
        array = array.cast(pa.decimal256(_INTEGER_DIGITS + scale, scale))
    return array.cast(pa.decimal128(precision, scale)).cast(pa.string())


def _quoted(_type: str, array: pa.Array) -> pa.StringArray:
    """Return texts in quotes, with escapes where JSON needs them."""
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
            for code in range(32):
                texts = pc.replace_substring(texts, chr(code), f"\\u{code:04x}")
    return _in_quotes(texts)


def _in_quotes(texts: pa.StringArray, after: str = "") -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, f'{after}"', "")


def _base64(_type: str, array: pa.Array) -> pa.StringArray:
    values = array.cast(pa.binary())
    found = [None if value is None else base64.b64encode(value).decode() for value in values.to_pylist()]
    return _in_quotes(pa.array(found, pa.string()))


def _uuids(_type: str, array: pa.Array) -> pa.StringArray:
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != 16:
            raise Invalid("a UUID has 16 bytes")
        found = [None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()]
        return _in_quotes(pa.array(found, pa.string()))
    return _quoted("string", array)


def _dates(_type: str, array: pa.Array) -> pa.StringArray:
    return _in_quotes(array.cast(pa.date32()).cast(pa.string()))


def _times(type_: str, array: pa.Array) -> pa.StringArray:
    if (array.type.tz is not None) != (type_ == "timestamptz"):
        raise Invalid("a timestamptz has a zone, and a timestamp has none")
    micros = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns").cast(pa.int64())
    return _in_quotes(micros.cast(pa.timestamp("us")).cast(pa.string()), "Z" if type_ == "timestamptz" else "")


_NUMBERS: Final = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}
_Test = Callable[[pa.DataType], bool]
_TEXT: Final[tuple[_Test, ...]] = (pa.types.is_string, pa.types.is_large_string)
_BYTES: Final[tuple[_Test, ...]] = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_INTEGER: Final[tuple[_Test, ...]] = (pa.types.is_integer,)
_REAL: Final[tuple[_Test, ...]] = (pa.types.is_integer, pa.types.is_floating)
_TIME: Final[tuple[_Test, ...]] = (pa.types.is_timestamp,)
_LEAVES: Final[Mapping[str, tuple[Sequence[_Test], Callable[[str, pa.Array], pa.StringArray]]]] = {
    "boolean": ((pa.types.is_boolean,), lambda _, array: array.cast(pa.string())),
    "int": (_INTEGER, _numbers),
    "long": (_INTEGER, _numbers),
    "float": (_REAL, _reals),
    "double": (_REAL, _reals),
    "decimal": ((pa.types.is_decimal, pa.types.is_integer), _decimals),
    "string": (_TEXT, _quoted),
    "binary": (_BYTES, _base64),
    "date": ((pa.types.is_date,), _dates),
    "timestamp": (_TIME, _times),
    "timestamptz": (_TIME, _times),
    "uuid": ((pa.types.is_fixed_size_binary, *_TEXT), _uuids),
}
"""For each declared type: the types of Arrow that it takes, and how texts are made of their values."""

"""Errors of PyIceberg as errors of Iceberg's REST specification, with the texts of Iceberg's Java library, by which its clients decide.

Source: Apache Iceberg REST specification, `ErrorModel`; Java's `CatalogHandlers` and `UpdateRequirement`.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pydantic
import pyiceberg.exceptions as iceberg

from bearlake.errors import TooLarge
from bearlake.records.json_values import TooManyValues
from bearlake.table.io import Outside
from bearlake.table.warehouse.model import Refused, forbidden, invalid

_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (iceberg.NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (iceberg.NoSuchTableError, 404, "NoSuchTableException"),
    (iceberg.NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (iceberg.TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (iceberg.NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (iceberg.CommitFailedException, 409, "CommitFailedException"),
)
_WRONG = (
    iceberg.ValidationError,
    iceberg.ValidationException,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    AssertionError,
    zlib.error,
    struct.error,
    EOFError,
)
"""What the libraries raise for requests and metadata files that they do not expect."""
_TEXTS = (
    ("Table UUID does not match", "UUID does not match"),
    ("last assigned field id has changed", "last assigned field id changed"),
    ("last assigned partition id has changed", "last assigned partition id changed"),
    ("default spec id has changed", "default partition spec changed"),
    ("current schema id has changed", "current schema changed"),
    ("default sort order id has changed", "default sort order changed"),
)


@contextmanager
def in_words_of_the_specification() -> Iterator[None]:
    """Raise `Refused` for the errors that clients handle; leave outages as they are."""
    try:
        yield
    except Outside as error:
        raise forbidden(str(error)) from error
    except TooManyValues as error:
        raise forbidden(f"{error} (catalog.warehouse.metadata_value_count_max)") from error
    except TooLarge as error:
        raise forbidden(f"{error} (catalog.warehouse.metadata_bytes_max)") from error
    except pydantic.ValidationError as error:
        raise invalid(_first(error)) from error
    except FileNotFoundError as error:
        raise Refused(404, "NotFoundException", f"the metadata file does not exist: {error}"[:300]) from error
    except NotImplementedError as error:
        raise Refused(406, "UnsupportedOperationException", str(error)[:300]) from error
    except tuple(kind for kind, _, _ in _KINDS) as error:
        status, name = next((status, name) for kind, status, name in _KINDS if isinstance(error, kind))
        raise Refused(status, name, _text(error)) from error
    except RecursionError as error:
        raise invalid("types are nested too deeply") from error
    except _WRONG as error:
        raise invalid(str(error)[:300]) from error


def _text(error: Exception) -> str:
    text = str(error)
    for ours, javas in _TEXTS:
        if ours in text:
            return f"Requirement failed: {text.removeprefix('Requirement failed: ').replace(ours, javas)}"
    return text


def _first(error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"[:300]

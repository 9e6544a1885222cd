"""Translates errors of PyIceberg, SQLAlchemy, the PostgreSQL driver, requests and the file layer into our error kinds.

Messages contain the kind and the first line of the original error, which is chained, but no URLs or properties.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pydantic
import pyiceberg.exceptions as iceberg
import requests
from sqlalchemy.exc import SQLAlchemyError

from bearlake.errors import Conflict, Denied, NotFound, Unavailable, Unsupported

CONFLICTS = (iceberg.CommitFailedException, iceberg.TableAlreadyExistsError, iceberg.ValidationException)
"""Nothing was changed, because another writer committed first."""
DENIALS = (iceberg.ForbiddenError, iceberg.UnauthorizedError, iceberg.OAuthError, iceberg.AuthorizationExpiredError)
ABSENCES = (iceberg.NoSuchTableError, iceberg.NoSuchNamespaceError)
OUTAGES = (iceberg.RESTError, requests.RequestException, SQLAlchemyError, OSError)
"""Outcome unknown. OSError: driver sockets, and metadata files deleted since they were looked up."""
UNREADABLE = (iceberg.ValidationError, pydantic.ValidationError)
"""The table has a feature unknown to PyIceberg, such as a type of a newer format version."""
# pg8000 raises these if a connection breaks in the middle of a message; SQLAlchemy does not wrap them.
BROKEN = (EOFError, BrokenPipeError)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the libraries' errors; `what` names the table or step."""
    try:
        yield
    except ABSENCES as error:
        raise NotFound(f"{what}: there is no such table") from error
    except DENIALS as error:
        raise Denied(f"{what}: the catalog refused: {_first_line(error)}") from error
    except CONFLICTS as error:
        raise Conflict(f"{what}: {_first_line(error)}") from error
    except UNREADABLE as error:
        raise Unsupported(f"{what}: its metadata cannot be read: {_first_line(error)}") from error
    except (*OUTAGES, *BROKEN) as error:
        raise Unavailable(f"{what}: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]

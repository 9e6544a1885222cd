"""The boundary of a child process: errors of a schema become answers (`work.py`, `value_work.py`)."""

from collections.abc import Callable

from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge


def answered(work: Callable[[], bytes]) -> bytes:
    """Return the answer of `work`, or the answer `refused` or `error` if it fails. Raises `MemoryError`."""
    try:
        return work()
    except (InvalidSchema, SchemaTooLarge) as error:
        return frames.packed({"refused": [type(error).__name__, str(error)]})
    except RecursionError:
        return frames.packed({"refused": [SchemaTooLarge.__name__, "The schema is nested too deeply"]})
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary of the process: the server reports it
        return frames.packed({"error": f"{type(error).__name__}: {error}"[:1000]})

"""Commands that need an extra say so: the base install is the command line alone."""

from importlib import import_module
from typing import Any

from bearlake.errors import Invalid


def server_module(name: str, extra: str = "kafka") -> Any:  # a module
    """Import a module that needs the extra `extra`. Raises `Invalid` when that is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bearlake"):
            raise
        raise Invalid(
            f"this command needs {error.name}, which is not installed: pip install 'bearlake[{extra}]'"
        ) from error

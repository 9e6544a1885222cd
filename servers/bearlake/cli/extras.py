"""Commands that need an extra say so: the base install is the command line alone."""

from importlib import import_module
from typing import Any

from bearlake.errors import Invalid


def server_module(name: str) -> Any:  # a module
    """Import a module of the server side. Raises `Invalid` when what it needs is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bearlake"):
            raise
        raise Invalid(
            f"this command needs {error.name}, which is not installed: pip install 'bearlake[kafka]'"
        ) from error

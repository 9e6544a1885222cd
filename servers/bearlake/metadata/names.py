"""Names that clients choose and a store keeps."""

from bearlake.errors import Invalid


def check_name(what: str, name: str, bytes_max: int) -> None:
    """Raise `Invalid` unless the name has 1 to `bytes_max` bytes of UTF-8 and no NUL (which PostgreSQL cannot store).

    Headers of other protocols may hold bytes that are not text; Python keeps them as lone surrogates.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} is not UTF-8") from error
    if not 0 < size <= bytes_max or "\0" in name:
        raise Invalid(f"{what} has {size} bytes, expected 1 to {bytes_max}, without NUL")


def is_name(name: str, bytes_max: int) -> bool:
    """Return whether `check_name` accepts the name."""
    try:
        check_name("a name", name, bytes_max)
    except Invalid:
        return False
    return True

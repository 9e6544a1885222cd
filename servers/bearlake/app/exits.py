"""Exit codes of a server process, stable for scripts."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `bearlake up` and `bearlake serve`. Documented in docs/operations.md."""

    OK = 0
    """Stopped as asked (SIGTERM, Ctrl-C, end of the tour) after draining."""
    FAILED = 1
    """A background task or a child process died, or the tour failed; the log says which."""
    USAGE = 2
    """The settings or options are wrong; one line on standard error says which."""
    UNAVAILABLE = 3
    """A port or the data folder is taken, or a store could not be reached at start."""
    FENCED = 4
    """A newer process of the same name has taken over."""
    INTERRUPTED = 130
    """A second Ctrl-C or SIGTERM: ended at once, without draining."""

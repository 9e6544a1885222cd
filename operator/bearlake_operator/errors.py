"""Errors, by what the caller must do about them."""


class OperatorError(Exception):
    """Base class of the errors that the operator raises itself."""


class Invalid(OperatorError):
    """A resource or the settings cannot be applied as they are; a retry fails until they are edited."""


class Unavailable(OperatorError):
    """The Kubernetes API or a data layer did not answer, or answered with an error; a retry may succeed."""


class Conflict(OperatorError):
    """Somebody else holds what was requested: a name, a lease, or a newer version of a resource."""


class Gone(Unavailable):
    """The requested version of a list has expired; a request for the newest version succeeds."""

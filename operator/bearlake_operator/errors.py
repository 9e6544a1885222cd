"""What goes wrong, by what has to be done about it."""


class OperatorError(Exception):
    """What the operator raises itself."""


class Invalid(OperatorError):
    """A resource or the settings say something that cannot be done; nothing changes until somebody edits them."""


class Unavailable(OperatorError):
    """The Kubernetes API or a data layer did not answer, or not well; the same attempt may succeed later."""


class Conflict(OperatorError):
    """Somebody else has what is wanted: a name, a lease, a newer version of a resource."""


class Gone(Unavailable):
    """The version that was asked for is not kept any more; asking for the newest succeeds."""

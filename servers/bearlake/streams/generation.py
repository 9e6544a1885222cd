"""The generation of what clients' requests were answered by: a connection keeps such an answer only within one generation."""


class Generation:
    """Counts the changes of streams, access rules and quotas, and the begin of draining. Use it from the event loop's thread only.

    Who keeps an answer reads `number` before asking, and asks again once the number is another one.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def advance(self) -> None:
        """Answers that were kept may be wrong from now on."""
        self.number += 1

"""What keeps an examination of a batch from its end."""

from bearlake.errors import Invalid


class Missing(Exception):
    """Schemas must be looked up before the batch can be judged: all ids that its keys, or values, name. Empty: nothing to look up."""

    def __init__(self, key_ids: frozenset[int], value_ids: frozenset[int]) -> None:
        super().__init__(len(key_ids), len(value_ids))
        self.key_ids = key_ids
        self.value_ids = value_ids


class NeedsOutside(Exception):
    """Values must be checked outside of this process, and the examination did not hold them."""


class TooManySchemas(Invalid):
    """The records of one batch name too many schemas."""

    def __init__(self, count_max: int) -> None:
        super().__init__(f"the records of a batch name more than {count_max} schemas: send fewer of them together")

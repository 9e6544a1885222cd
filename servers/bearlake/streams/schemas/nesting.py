"""How deeply JSON values are nested, found without recursion."""


def is_deeper(value: object, depth_max: int) -> bool:
    """Return whether more than `depth_max` objects and lists are nested in a JSON value."""
    level = [value]
    for _ in range(depth_max + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True

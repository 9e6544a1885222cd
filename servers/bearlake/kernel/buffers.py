"""Objects with the buffer protocol, as bytes."""

Buffer = bytes | bytearray | memoryview


def check_bounds(size: int, start: int, end: int) -> None:
    """Raise `ValueError` unless 0 <= start <= end <= size."""
    if not 0 <= start <= end <= size:
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")


def view_of(buffer: Buffer) -> memoryview:
    """The buffer's bytes; `BufferError` when they are not contiguous."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")

"""Access the bytes of objects that support the buffer protocol."""

Buffer = bytes | bytearray | memoryview


def check_bounds(size: int, start: int, end: int) -> None:
    """Raise `ValueError` unless 0 <= start <= end <= size."""
    if not 0 <= start <= end <= size:
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {size} bytes")


def view_of(buffer: Buffer) -> memoryview:
    """Return a view of the buffer's bytes; raise `BufferError` if they are not contiguous."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")

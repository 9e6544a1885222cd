"""The columns of a decoder: they grow slot by slot, and give up the slots of a value that turns out to be malformed."""

from array import array
from collections.abc import Collection, Iterator, Sequence

from bearlake.kernel.typed import (
    BINARY_KINDS,
    BITMAPS,
    CHECKED_KINDS,
    DECIMAL_DIGITS_MAX,
    FIXED_BYTES_MAX,
    LEVELS_MAX,
    LISTS,
    NODES_MAX,
    STRUCTS,
    TEXTS,
    WIDTHS,
    TypedKind,
    TypedNode,
    TypedSchema,
    TypedSlots,
)


class Column:
    """The slots of one node."""

    __slots__ = ("children", "content", "index", "is_nullable", "length", "node", "offsets", "slot_bytes", "validity")

    def __init__(self, index: int, node: TypedNode, children: "Sequence[Column]", *, is_nullable: bool) -> None:
        self.index = index
        self.node = node
        self.children = children
        self.is_nullable = is_nullable
        self.length = 0
        self.validity: list[bool] = []
        self.offsets = [0]
        self.content = bytearray()
        """Bitmaps have a byte per slot until they are taken."""
        self.slot_bytes = self._slot_bytes()
        """Bytes of a slot in this column and in those of its struct's fields."""

    def _slot_bytes(self) -> int:
        kind = TypedKind(self.node.kind)
        own = 1 if kind in BITMAPS else 4 if kind in TEXTS or kind in LISTS else 0 if kind in STRUCTS else self.width
        below = sum(child.slot_bytes for child in self.children) if kind in STRUCTS else 0
        return own + self.is_nullable + below

    @property
    def width(self) -> int:
        """Bytes of a slot of a kind with a fixed width."""
        return self.node.size if self.node.kind == TypedKind.FIXED else WIDTHS[TypedKind(self.node.kind)]

    def add(self, content: bytes = b"") -> None:
        """Append a slot that is not null; the children's slots are there already."""
        self.content += content
        self.end(is_valid=True)

    def add_null(self) -> None:
        """Append a null slot here and in the columns of a struct's fields."""
        kind = TypedKind(self.node.kind)
        if kind in STRUCTS:
            for child in self.children:
                child.add_null()
        elif kind not in TEXTS and kind not in LISTS:
            self.content += bytes(1 if kind in BITMAPS else self.width)
        self.end(is_valid=False)

    def end(self, *, is_valid: bool) -> None:
        """End a slot: its content, and its slots in other columns, are there already."""
        kind = TypedKind(self.node.kind)
        self.length += 1
        self.validity.append(is_valid)
        if kind in TEXTS:
            self.offsets.append(len(self.content))
        elif kind in LISTS:
            self.offsets.append(self.children[0].length)

    def cut(self, length: int) -> None:
        """Remove the slots from `length` on, and those that they own in other columns."""
        kind = TypedKind(self.node.kind)
        self.length = min(self.length, length)
        del self.validity[self.length :]
        if kind in TEXTS or kind in LISTS:
            del self.offsets[self.length + 1 :]
        if kind in TEXTS:
            del self.content[self.offsets[-1] :]
        elif kind not in LISTS and kind not in STRUCTS:
            del self.content[self.length * (1 if kind in BITMAPS else self.width) :]
        for child in self.children:
            child.cut(self.offsets[-1] if kind in LISTS else length)

    def take(self) -> Iterator[TypedSlots]:
        """Yield this column, then those below it."""
        kind = TypedKind(self.node.kind)
        nulls = self.validity.count(False) if self.is_nullable else 0
        validity = packed(self.validity) if nulls else None
        offsets = array("i", self.offsets).tobytes() if kind in TEXTS or kind in LISTS else None
        content = None
        if kind in BITMAPS:
            content = packed([bool(bit) for bit in self.content])
        elif kind not in LISTS and kind not in STRUCTS:
            content = bytes(self.content)
        yield TypedSlots(self.length, nulls, validity, offsets, content)
        for child in self.children:
            yield from child.take()


def columns_of(schema: TypedSchema) -> Column:
    """Return empty columns. Raises `ValueError` if the nodes are not a tree of known kinds."""
    if not 0 < len(schema) <= NODES_MAX:
        raise ValueError(f"a schema has 1 to {NODES_MAX} nodes, not {len(schema)}")
    for node in schema:
        check_node(node, len(schema))
    if schema[0].kind != TypedKind.RECORD:
        raise ValueError("node 0 is not a RECORD")
    return _column(schema, 0, set(), 0, is_nullable=True)


def check_node(
    node: TypedNode, node_count: int, *, opaque_children: int = 1, kinds: Collection[int] = BINARY_KINDS
) -> None:
    """Raise `ValueError` unless the node's kind is one of `kinds`, and its fields fit it."""
    children = {TypedKind.ARRAY: 1, TypedKind.MAP: 2, TypedKind.OPAQUE: opaque_children}
    if node.kind not in kinds:
        raise ValueError(f"{node.kind} is not a kind of node")
    kind = TypedKind(node.kind)
    is_sized = kind in (TypedKind.FIXED, TypedKind.DECIMAL_FIXED)
    is_decimal = kind in (TypedKind.DECIMAL, TypedKind.DECIMAL_FIXED)
    if (
        not -1 <= node.null_branch <= 1
        or (is_sized and not 0 < node.size <= FIXED_BYTES_MAX)
        or (is_decimal and not 0 < node.precision <= DECIMAL_DIGITS_MAX)
        or (kind == TypedKind.DECIMAL and not 0 <= node.size <= DECIMAL_DIGITS_MAX)
        or (kind not in STRUCTS and len(node.children) != children.get(kind, 0))
        or (kind in STRUCTS and not node.children)
        or any(not 0 <= child < node_count for child in node.children)
    ):
        raise ValueError(f"a node of kind {kind.name} is malformed")


def _column(schema: TypedSchema, index: int, seen: set[int], level: int, *, is_nullable: bool) -> Column:
    node = schema[index]
    kind = TypedKind(node.kind)
    if index in seen or level >= LEVELS_MAX:
        raise ValueError("the nodes are not a tree")
    seen.add(index)
    below = () if kind == TypedKind.OPAQUE else node.children
    if kind == TypedKind.MAP and (schema[below[0]].kind, schema[below[0]].null_branch) != (TypedKind.STRING, -1):
        raise ValueError("a key of a map is not a STRING")
    if kind == TypedKind.UNION:
        below = tuple(child for child in below if not is_plain_null(schema[child]))
    children = [
        _column(schema, child, seen, level + 1, is_nullable=may_be_null(schema, child, kind)) for child in below
    ]
    return Column(index, node, children, is_nullable=is_nullable)


def is_plain_null(node: TypedNode) -> bool:
    """Whether the node is a NULL outside of a union of null alone: a branch without a column."""
    return node.kind == TypedKind.NULL and node.null_branch < 0


def may_be_null(schema: TypedSchema, index: int, parent: TypedKind) -> bool:
    """Whether slots of the node can be null although the parent's are not."""
    node = schema[index]
    return (
        node.null_branch >= 0
        or parent == TypedKind.UNION
        or node.kind == TypedKind.NULL
        or node.kind in CHECKED_KINDS
        or (node.kind == TypedKind.UNION and any(is_plain_null(schema[child]) for child in node.children))
    )


def packed(bits: Sequence[bool]) -> bytes:
    """Pack bits, the least significant first; the bits after the last are 0."""
    out = bytearray((len(bits) + 7) // 8)
    for at, bit in enumerate(bits):
        if bit:
            out[at >> 3] |= 1 << (at & 7)
    return bytes(out)

"""Mutations of inputs: of bytes, of JSON documents, and of text. The same random source makes the same inputs."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    31,
    61,
    64,
    100,
    127,
    128,
    255,
    256,
    1000,
    4096,
    32767,
    32768,
    65535,
    65536,
    20_001,
    1_000_001,
)
WIDE = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
VARINTS = (
    b"\x80\x00",
    b"\xff" * 4 + b"\x0f",
    b"\xff" * 5 + b"\x7f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
)
TEXTS = (
    "",
    "\0",
    "a" * 300,
    "\udcff",
    "\U0010ffff",
    "é",
    "-1",
    "NaN",
    "1e999",
    "../..",
    "%00",
    "*",
    "__proto__",
    "\n",
    "{}",
    "[",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400),
    *([], {}, [[]], {"": None}, [None] * 50, "AA==", "not base64!"),
    *TEXTS,
)
DEPTH = 1200
"""More than Python's limit of recursion."""

Fuzz = Callable[[Random, bytearray], None]
"""Changes an input in place."""


class Mutator:
    """Makes inputs of a corpus."""

    def __init__(self, random: Random, tokens: Sequence[bytes], bytes_max: int) -> None:
        self._random = random
        self._tokens = tokens
        self._bytes_max = bytes_max
        self._changes = (
            *(self._flip, self._byte, self._byte, self._number, self._number, self._remove),
            *(self._repeat, self._insert, self._token, self._varint, self._splice, self._cut),
        )

    def next(self, corpus: Sequence[bytes]) -> bytes:
        """Return an input: one of `corpus`, half of the time a recent one, with few changes or many."""
        random = self._random
        data = bytearray(self.chosen(corpus))
        for _ in range(1 << random.choice((0, 0, 0, 1, 1, 2, 3))):
            random.choice(self._changes)(data, corpus)
        del data[self._bytes_max :]
        return bytes(data)

    def chosen(self, corpus: Sequence[bytes]) -> bytes:
        """Return an input of the corpus, half of the time a recent one."""
        recent = corpus[-max(1, len(corpus) // 5) :]
        return self._random.choice(recent if self._random.random() < 0.5 else corpus)

    def _flip(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _byte(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        if data:
            data[self._random.randrange(len(data))] = self._random.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, self._random.randrange(256))
            )

    def _number(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        random = self._random
        width = random.choice((2, 4, 4, 8))
        if len(data) < width:
            return
        at = random.randrange(len(data) - width + 1)
        order: Literal["big", "little"] = "big" if random.random() < 0.8 else "little"
        number = random.choice(NUMBERS + WIDE)
        if random.random() < 0.3:  # near what is there
            number = int.from_bytes(data[at : at + width], order) + random.choice((-2, -1, 1, 2))
        elif random.random() < 0.3:
            number = len(data) - at + random.randrange(-9, 9)
        data[at : at + width] = (number * random.choice((1, 1, -1)) % (1 << 8 * width)).to_bytes(width, order)

    def _remove(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        start, end = self._span(data)
        del data[start:end]

    def _repeat(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        start, end = self._span(data)
        data[start:start] = data[start:end] * self._random.choice((1, 1, 1, 2, 20))

    def _insert(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data) + 1)
        data[at:at] = self._random.randbytes(self._random.choice((1, 1, 2, 4, 8)))

    def _token(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data) + 1)
        token = self._random.choice(self._tokens or VARINTS)
        data[at : at + (len(token) if self._random.random() < 0.5 else 0)] = token

    def _varint(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        at = self._random.randrange(len(data) + 1)
        data[at : at + 1] = self._random.choice(VARINTS)

    def _splice(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        other = self._random.choice(corpus)
        start, end = self._span(other)
        at = self._random.randrange(len(data) + 1)
        data[at : at + self._random.choice((0, end - start))] = other[start:end]

    def _cut(self, data: bytearray, corpus: Sequence[bytes]) -> None:
        if data and self._random.random() < 0.5:
            del data[self._random.randrange(len(data)) :]

    def _span(self, data: bytes | bytearray) -> tuple[int, int]:
        start = self._random.randrange(len(data) + 1)
        most = self._random.choice((1, 2, 4, 8, 16, 64, 1024))
        return start, min(len(data), start + self._random.randrange(most) + 1)


def change_json(random: Random, data: bytearray) -> None:
    """Replace, remove, rename, repeat or nest a part of a JSON document; leaves other bytes as they are."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    text = json.dumps(changed(random, document))
    if random.random() < 0.02:
        text = text.replace("null", "NaN")
    if random.random() < 0.02:
        text = text.replace(random.choice('{}[],:"'), random.choice('{}[],:"'), 1)
    if random.random() < 0.005:
        text = text.replace("0", "[" * DEPTH + "]" * DEPTH, 1)
    data[:] = text.encode()


def changed(random: Random, document: Any, tries: int = 3) -> Any:
    """Return a JSON value (Any) with some parts changed."""
    places = list(_places(document, ()))
    for _ in range(random.randrange(1, tries + 1)):
        path = random.choice(places)
        document = _replaced(random, document, path)
        places = list(_places(document, ()))
    return document


def _places(document: Any, path: tuple[Any, ...]) -> Any:
    yield path
    if len(path) < 8:
        inner = (
            document.items()
            if isinstance(document, dict)
            else enumerate(document)
            if isinstance(document, list)
            else ()
        )
        for key, value in inner:
            yield from _places(value, (*path, key))


def _replaced(random: Random, document: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _other(random, document)
    copy = dict(document) if isinstance(document, dict) else list(document)
    key, *rest = path
    if not rest and random.random() < 0.15:
        del copy[key]
    elif not rest and random.random() < 0.1 and isinstance(copy, dict):
        copy[random.choice(TEXTS)] = copy.pop(key)
    elif not rest and random.random() < 0.1 and isinstance(copy, list):
        copy.extend([copy[key]] * random.choice((1, 2, 50)))
    else:
        copy[key] = _replaced(random, copy[key], tuple(rest))
    return copy


def _other(random: Random, value: Any) -> Any:
    choice = random.random()
    if choice < 0.6:
        return random.choice(VALUES)
    if isinstance(value, str):
        return change_text(random, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value + random.choice((-1, 1, 2**31, -(2**31), 2**63))
    return [value] if choice < 0.8 else {"a": value}


def change_text(random: Random, text: str) -> str:
    """Return the text with a part removed, repeated or replaced."""
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((0, 1, 1, 4)))
    return text[:start] + random.choice((*TEXTS, text[start:end] * 2, chr(random.randrange(1, 0xD800)))) + text[end:]

"""Tokens of JSON: the grammar of RFC 8259, and nothing else: no comments, no NaN, no byte order mark.

The reader moves from token to token, and stops where the text ends too early (TRUNCATED), where another character stands than the grammar
allows (SYNTAX), at a string that is not UTF-8 (TEXT), and at too many objects and arrays around a value (DEPTH).
"""

import re
from typing import Final

from bearlake.kernel.typed import TypedOutcome
from bearlake.kernel.typed.decode import Stop

LEVELS_MAX: Final = 1_000
"""Limit of the objects and arrays around a value, in parts that have no columns."""

SPACE: Final = b" \n\r\t"
DIGITS: Final = b"0123456789"
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPE: Final = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_CHARACTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_HIGH: Final = range(0xD800, 0xDC00)
_LOW: Final = range(0xDC00, 0xE000)


def unescaped(raw: bytes) -> bytes | None:
    """Return a string without its quotes as text; None: it has half of a surrogate pair."""
    out = bytearray()
    at = 0
    while at < len(raw):
        found = _ESCAPE.match(raw, at)
        if found is None:
            out.append(raw[at])
            at += 1
            continue
        at = found.end()
        if found[2] is not None:
            out += _CHARACTERS.get(found[2], found[2])
            continue
        code = int(found[1], 16)
        if code in _HIGH:
            low = _ESCAPE.match(raw, at)
            unit = 0 if low is None or low[1] is None else int(low[1], 16)
            if low is None or unit not in _LOW:
                return None
            code, at = 0x10000 + (code - _HIGH.start << 10) + unit - _LOW.start, low.end()
        elif code in _LOW:
            return None
        out += chr(code).encode()
    return bytes(out)


class JsonReader:
    """Reads one text after the other. Errors name the node at `index`."""

    _data: bytes = b""
    _at: int = 0

    def _peek(self, index: int) -> int:
        """Return the next octet that is not space, which stays."""
        self._space()
        if self._at == len(self._data):
            raise Stop(index, TypedOutcome.TRUNCATED)
        return self._data[self._at]

    def _space(self) -> None:
        while self._at < len(self._data) and self._data[self._at] in SPACE:
            self._at += 1

    def _next(self, index: int, expected: bytes) -> None:
        """Move past one of the octets."""
        if self._at == len(self._data):
            raise Stop(index, TypedOutcome.TRUNCATED)
        if self._data[self._at] not in expected:
            raise Stop(index, TypedOutcome.SYNTAX)
        self._at += 1

    def _word(self, index: int, word: bytes) -> None:
        for octet in word:
            self._next(index, bytes([octet]))

    def _string(self, index: int) -> bytes:
        """Move past a string; return what is between its quotes, as it is written."""
        self._at += 1
        start = self._at
        while True:
            found = _PLAIN.match(self._data, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._data) and self._data[self._at] == ord('"'):
                break
            self._next(index, b"\\")
            if self._data[self._at : self._at + 1] == b"u":
                self._at += 1
                for _ in range(4):
                    self._next(index, b"0123456789abcdefABCDEF")
            else:
                self._next(index, b'"\\/bfnrt')
        self._at += 1
        raw = self._data[start : self._at - 1]
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise Stop(index, TypedOutcome.TEXT) from None
        return raw

    def _number(self, index: int) -> bytes:
        """Move past a number; return it."""
        start = self._at
        if self._data[self._at] == ord("-"):
            self._at += 1
        if self._data[self._at : self._at + 1] == b"0":
            self._at += 1
        else:
            self._digits(index)
        if self._data[self._at : self._at + 1] == b".":
            self._at += 1
            self._digits(index)
        if self._data[self._at : self._at + 1] in (b"e", b"E"):
            self._at += 1
            if self._data[self._at : self._at + 1] in (b"+", b"-"):
                self._at += 1
            self._digits(index)
        return self._data[start : self._at]

    def _digits(self, index: int) -> None:
        self._next(index, DIGITS)
        while self._at < len(self._data) and self._data[self._at] in DIGITS:
            self._at += 1

    def _key(self, index: int) -> bytes:
        """Move past a key and its colon; return the key as it is written."""
        if self._peek(index) != ord('"'):
            raise Stop(index, TypedOutcome.SYNTAX)
        key = self._string(index)
        if self._peek(index) != ord(":"):
            raise Stop(index, TypedOutcome.SYNTAX)
        self._at += 1
        return key

    def _pass(self, index: int, level: int) -> None:
        """Move past a value of any type, below `level` objects and arrays."""
        closings = bytearray()  # of the objects and arrays around the place that is read
        while True:
            octet = self._peek(index)
            if octet in b"{[":
                if level + len(closings) >= LEVELS_MAX:
                    raise Stop(index, TypedOutcome.DEPTH)
                closings.append(ord("}") if octet == ord("{") else ord("]"))
                self._at += 1
                if self._peek(index) != closings[-1]:
                    if octet == ord("{"):
                        self._key(index)
                    continue
                self._at += 1
                closings.pop()
            else:
                self._scalar(index, octet)
            if not self._after(index, closings):
                return

    def _scalar(self, index: int, octet: int) -> None:
        words = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
        if octet == ord('"'):
            self._string(index)
        elif octet in words:
            self._word(index, words[octet])
        elif octet == ord("-") or octet in DIGITS:
            self._number(index)
        else:
            raise Stop(index, TypedOutcome.SYNTAX)

    def _after(self, index: int, closings: bytearray) -> bool:
        """Move past what follows a value; return whether another value of the objects and arrays follows."""
        while closings:
            octet = self._peek(index)
            if octet not in (ord(","), closings[-1]):
                raise Stop(index, TypedOutcome.SYNTAX)
            self._at += 1
            if octet == ord(","):
                if closings[-1] == ord("}"):
                    self._key(index)
                return True
            closings.pop()
        return False

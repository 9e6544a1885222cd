"""A process that forms the network between other processes: links that pass bytes unchanged unless a rule is set.

    python tests/nemesis/proxy.py        one JSON request per line on standard input, one JSON answer per line on standard output

    {"do": "open", "link": NAME, "listen": "127.0.0.2:0", "target": "127.0.0.1:5432", "kind": "tcp"}   → {"port": N}
    {"do": "target", "link": NAME, "target": ADDRESS}          the target of new connections; open ones are reset
    {"do": "rule", "link": NAME, "rule": {...} or null}        → the link's counts before the rule
    {"do": "counts"}                                           → counts by link

A rule affects `fraction` of the connections; with `old`, only those that were open when the rule began. Only `mode` is required:

    delay    each block waits `delay_ms` (half to one and a half times that)
    drop     bytes in `direction` (to_server, to_client, both) are dropped; the connection is reset when the rule ends
    cut      open and new connections are reset
    hold     bytes from clients wait until the rule ends, and are then delivered, even if their client has gone
    status   (links of kind `http`) requests with one of `methods` get `status` and are not forwarded: those whose path hashes below
             `fraction`, or each with that probability (`by`: path, request)

The process ends when its standard input ends, so it does not outlive the process that started it.
"""

import asyncio
import contextlib
import errno
import json
import random
import socket
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

BLOCK_BYTES = 1 << 16
HELD_BYTES_MAX = 64 << 20
LATE_ANSWER_S = 20.0
CONNECT_S = 5.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """See the module."""

    mode: Literal["delay", "drop", "cut", "hold", "status"]
    fraction: float = 1.0
    old: bool = False
    direction: Literal["to_server", "to_client", "both"] = "both"
    delay_ms: float = 0.0
    status: int = 503
    methods: tuple[str, ...] = ("PUT",)
    by: Literal["path", "request"] = "path"
    salt: int = 0

    def hits(self, text: str) -> bool:
        """Return whether `text` is in the fraction that the rule affects; always the same result for the same text."""
        return zlib.crc32(f"{self.salt}/{text}".encode()) / 2**32 < self.fraction


@dataclass(eq=False)
class Connection:
    """A client's connection, and the corresponding connection to the server."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    held: list[bytes] = field(default_factory=list)
    has_lost: bool = False
    is_client_gone: bool = False

    def reset(self) -> None:
        """Break both sides."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError, AttributeError):
                side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            side.transport.abort()


class Link:
    """A listening address, the target of its connections, and the current rule."""

    def __init__(self, target: str, kind: str) -> None:
        self.target = target
        self.kind = kind
        self.rule: Rule | None = None
        self.old: set[int] = set()
        """Connections that were open when the rule began."""
        self.counts: Counter[str] = Counter()
        self.connections: dict[int, Connection] = {}
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def listen(self, address: str) -> int:
        """Begin to listen; return the port."""
        host, _, port = address.rpartition(":")
        self._listener = await asyncio.start_server(self._accept, host, int(port))
        chosen: int = self._listener.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Reset all connections and stop listening."""
        self.set_rule(Rule(mode="cut"))
        self._listener.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set_rule(self, rule: Rule | None) -> None:
        """Replace the rule. Connections that lost bytes under the earlier rule are reset; bytes that it held back are delivered."""
        self.rule, self.old = rule, set(self.connections)
        for connection in list(self.connections.values()):
            if connection.has_lost or (rule and rule.mode == "cut" and self.is_hit(connection.number)):
                self.counts["reset"] += 1
                connection.reset()
            elif connection.held and not self.is_hit(connection.number, "hold"):
                self._deliver(connection)
        self.changed.set()
        self.changed = asyncio.Event()

    def set_target(self, target: str) -> None:
        """See the module."""
        self.target = target
        for connection in list(self.connections.values()):
            self.counts["reset"] += 1
            connection.reset()

    def is_hit(self, number: int, *modes: str) -> bool:
        """Return whether the rule affects this connection, and has one of these `modes` if any are given."""
        rule = self.rule
        if rule is None or (modes and rule.mode not in modes) or (rule.old and number not in self.old):
            return False
        return rule.mode == "status" or rule.hits(str(number))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.counts["connections"] += 1
        number = self.counts["connections"]
        if self.is_hit(number, "cut"):
            self.counts["refused"] += 1
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_S):
                there, back = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        connection = self.connections[number] = Connection(number, writer, back)
        answers = asyncio.ensure_future(self._to_client(connection, there))
        try:
            await (self._requests if self.kind == "http" else self._to_server)(connection, reader)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            connection.is_client_gone = True
        finally:
            await self._end(connection, answers)

    async def _end(self, connection: Connection, answers: "asyncio.Task[None]") -> None:
        """After the client's last byte: wait until held bytes are delivered and the server has answered."""
        connection.is_client_gone = True
        try:
            while connection.held:
                await self.changed.wait()
            with contextlib.suppress(OSError):
                connection.server.write_eof()
            await asyncio.wait({answers}, timeout=LATE_ANSWER_S)
        finally:
            answers.cancel()
            self.connections.pop(connection.number, None)
            connection.server.close()
            connection.client.close()

    async def _to_server(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        while block := await reader.read(BLOCK_BYTES):
            await self._send(connection, block)

    async def _send(self, connection: Connection, block: bytes) -> None:
        """Send a block of the client as the rule requires."""
        if self.is_hit(connection.number, "drop") and self.rule and self.rule.direction != "to_client":
            connection.has_lost = True
            self.counts["dropped_bytes"] += len(block)
            return
        if self.is_hit(connection.number, "hold"):
            if sum(map(len, connection.held)) > HELD_BYTES_MAX:
                raise OSError("too much is held back")
            connection.held.append(block)
            self.counts["held_bytes"] += len(block)
            return
        await self._delay(connection)
        connection.server.write(block)
        await connection.server.drain()

    async def _delay(self, connection: Connection) -> None:
        if self.rule is not None and self.is_hit(connection.number, "delay"):
            self.counts["delayed_blocks"] += 1
            await asyncio.sleep(self.rule.delay_ms / 1000 * random.uniform(0.5, 1.5))

    def _deliver(self, connection: Connection) -> None:
        """Send the bytes that were held back to the server."""
        held, connection.held = connection.held, []
        self.counts["delivered_later_bytes"] += sum(map(len, held))
        if connection.is_client_gone:
            self.counts["delivered_after_client_had_gone"] += 1
        connection.server.write(b"".join(held))

    async def _to_client(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while block := await reader.read(BLOCK_BYTES):
                if self.is_hit(connection.number, "drop") and self.rule and self.rule.direction != "to_server":
                    connection.has_lost = True
                    self.counts["dropped_answer_bytes"] += len(block)
                    continue
                if connection.is_client_gone:
                    continue
                await self._delay(connection)
                connection.client.write(block)
                await connection.client.drain()
            if not connection.is_client_gone:
                connection.client.close()

    # -- HTTP ----------------------------------------------------------------------------------------------------

    async def _requests(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        """Forward HTTP/1.1 requests one by one. The clients do not pipeline, so an answer of the proxy is never out of order."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as end:
                if end.partial:
                    await self._send(connection, end.partial)
                return
            method, path, headers = _parsed(head)
            rule = self.rule
            if rule and rule.mode == "status" and self._is_refused(rule, method, path):
                self.counts[f"status_{rule.status}"] += 1
                text = f"HTTP/1.1 {rule.status} Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                connection.client.write(text.encode())
                await connection.client.drain()
                return
            await self._send(connection, head)
            await self._body(connection, reader, headers)

    def _is_refused(self, rule: Rule, method: str, path: str) -> bool:
        if method not in rule.methods:
            return False
        return rule.hits(path.partition("?")[0]) if rule.by == "path" else random.random() < rule.fraction

    async def _body(self, connection: Connection, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> None:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            size = 1
            while size:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                await self._send(connection, line + await reader.readexactly(size + 2))
            return
        left = int(headers.get("content-length", "0"))
        while left:
            block = await reader.read(min(left, BLOCK_BYTES))
            if not block:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(block)
            await self._send(connection, block)


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return method, path, headers


async def serve() -> None:
    """Execute the commands from standard input until it ends."""
    links: dict[str, Link] = {}
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    while line := await requests.readline():
        try:
            answer = await _do(links, json.loads(line))
        except (OSError, KeyError, TypeError, ValueError) as error:
            is_address_in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            answer = {"error": repr(error), "is_address_in_use": is_address_in_use}
        print(json.dumps(answer), flush=True)


async def _do(links: dict[str, Link], command: dict[str, Any]) -> dict[str, Any]:
    if command["do"] == "counts":
        return {name: dict(link.counts) for name, link in links.items()}
    if command["do"] == "open":
        link = Link(command["target"], command["kind"])
        port = await link.listen(command["listen"])
        links[command["link"]] = link
        return {"port": port}
    link = links[command["link"]]
    before = dict(link.counts)  # the immediate effects of a rule count as its own
    if command["do"] == "target":
        link.set_target(command["target"])
    else:
        link.set_rule(Rule(**command["rule"]) if command["rule"] else None)
    return before


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())

"""Requests to HTTP APIs: made from an OpenAPI document, changed by their structure, sent over a socket of their own.

A plan is a JSON object:

    {"method": "POST", "path": "/topics/{topic}", "in_path": {"topic": "t"}, "query": {"a": ["b"]}, "headers": {"Content-Type": "…"},
     "body": JSON value | null, "raw": null | "the bytes of the body as Latin-1"}

A body is sent whole, or in chunks if its headers say `Transfer-Encoding: chunked`.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import quote

from fuzz.mutation import TEXTS, Mutator, changed

ANSWER_S = 30
"""Wall-clock time limit of an answer. Long polls of the servers under test are short."""
UNFINISHED_S = 0.1
"""As `ANSWER_S`, for requests whose headers may announce more bytes than are sent."""
FRAMING = frozenset({"Content-Length", "Transfer-Encoding", "Expect"})
ANSWER_BYTES_MAX = 64 * 1024 * 1024
ACCEPTABLE = frozenset({501, 503, 504, 505})
"""Statuses from 500 on that are not bugs: not implemented, busy, too late, an unknown version of HTTP."""
HOSTILE_HEADERS = {
    "Content-Encoding": ("gzip", "zstd", "br", "\xff"),
    "Transfer-Encoding": ("chunked", "gzip", "chunked, chunked"),
    "Content-Length": ("0", "-1", "99999999999999999999", "5, 5"),
    "Accept": ("*/*", "application/vnd.kafka.avro.v2+json", "\xff", "a" * 9000),
    "Content-Type": (
        "",
        "text/plain; charset=\xff",
        "application/json; charset=utf-16",
        "application/vnd.kafka.v2+json",
        "multipart/form-data",
    ),
    "Origin": ("null", "http://evil.example", "\xff"),
    "Host": ("", "evil.example", "127.0.0.1", "[::1", "a:b:c"),
    "If-None-Match": ('"x"', "*", "\xff"),
    "Expect": ("100-continue", "x"),
    "X-Forwarded-Host": ("a" * 300, "\xff"),
    "Authorization": ("Basic \xff", "Bearer x", "Bearer a.b.c", "Bearlake x"),
    "Range": ("bytes=0-5",),
    "Stream-TTL": ("5", "-1", "\xb2"),
    "Stream-Seq": ("a", "\xff"),
    "Stream-Closed": ("true",),
    "Producer-Id": ("p", "\xff"),
    "Producer-Epoch": ("0", "\xb2", "9" * 30),
    "Producer-Seq": ("0", "-1", "9" * 30),
    "Stream-Forked-From": ("/v1/stream/known", "known", "\xff"),
    "Stream-Fork-Offset": ("0", "x"),
    "Stream-Expires-At": ("2026-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "\xb2"),
}


def plan_of(
    method: str, path: str, in_path: Mapping[str, str], headers: Mapping[str, str], body: Any
) -> dict[str, Any]:
    """Return a plan without a query (Any: JSON)."""
    parts = {"in_path": dict(in_path), "query": {}, "headers": dict(headers)}
    return {"method": method, "path": path, **parts, "body": body, "raw": None}


def plans(document: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield requests of each operation: one per content type of its body, with known parameters, without a query and with all of it."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            examples: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
            for parameter in operation.get("parameters", []):
                example = _text(_example(document, parameter["schema"], 0))
                examples[parameter["in"]][parameter["name"]] = (
                    known.get(parameter["name"], example) if parameter["in"] == "path" else example
                )
            contents = operation.get("requestBody", {}).get("content", {})
            for kind, content in contents.items() or [("", {})]:
                body = _example(document, content["schema"], 0) if content.get("schema") else None
                own = {"Content-Type": kind} if kind else {}
                plan = plan_of(method.upper(), path, examples["path"], own, body)
                yield plan
                if examples["query"] or examples["header"]:
                    query = {name: [value] for name, value in examples["query"].items()}
                    yield {**plan, "headers": {**own, **examples["header"]}, "query": query}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _example(document: Mapping[str, Any], schema: Any, depth: int) -> Any:
    """Return a value that fits a JSON schema, nearly (Any: JSON)."""
    if not isinstance(schema, dict) or depth > 8:
        return None
    if "$ref" in schema:
        return _example(document, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], depth + 1)
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            found = [_example(document, alternative, depth + 1) for alternative in schema[key]]
            return next((value for value in found if value is not None), None)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        made = {name: _example(document, inner, depth + 1) for name, inner in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        return made or ({"retention.ms": _example(document, more, depth + 1)} if isinstance(more, dict) else {})
    if kind == "array":
        return [_example(document, schema.get("items", {}), depth + 1)]
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return True
    if kind == "string":
        return (
            "AA=="
            if schema.get("contentEncoding") == "base64"
            else "2026-01-01T00:00:00Z"
            if schema.get("format") == "date-time"
            else "known"
        )
    return "known"


def change_plan(random: Random, data: bytearray) -> None:
    """Change one or more parts of a plan."""
    plan = json.loads(data)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        _CHANGES[random.randrange(len(_CHANGES))](random, plan)
    data[:] = json.dumps(plan).encode()


def _change_body(random: Random, plan: dict[str, Any]) -> None:
    plan["body"] = changed(random, plan["body"])
    plan["raw"] = None


def _change_bytes(random: Random, plan: dict[str, Any]) -> None:
    octets = body_of(plan)
    plan["raw"] = Mutator(random, (b"{", b'"', b"\\u", b"\xff", b"1e999"), 5000).next([octets]).decode("latin-1")


def _change_path(random: Random, plan: dict[str, Any]) -> None:
    if plan["in_path"]:
        name = random.choice(sorted(plan["in_path"]))
        plan["in_path"][name] = random.choice((*TEXTS, *_NAMES, plan["in_path"][name] + random.choice(TEXTS)))


_NAMES = (
    "known",
    "0",
    "1",
    "-1",
    "2147483647",
    "2147483648",
    "9" * 25,
    "²",
    "a/b",
    ".",
    "..",
    "x" * 260,
    "latest",
    ":.:",
    ":*:",
    "__consumer_offsets",
)


def _change_query(random: Random, plan: dict[str, Any]) -> None:
    names = [
        *sorted(plan["query"]),
        "offset",
        "live",
        "timeout",
        "deleted",
        "normalize",
        "format",
        "page_size",
        "subjectPrefix",
    ]
    plan["query"][random.choice(names)] = [
        str(random.choice((*TEXTS, *_NAMES, "true", "long-poll", "sse"))) for _ in range(random.choice((1, 1, 2)))
    ]


def _change_header(random: Random, plan: dict[str, Any]) -> None:
    name = random.choice(sorted(HOSTILE_HEADERS))
    plan["headers"][name] = random.choice(HOSTILE_HEADERS[name])


def _change_method(random: Random, plan: dict[str, Any]) -> None:
    if random.random() < 0.2:
        plan["method"] = random.choice(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"))


_CHANGES = (
    _change_body,
    _change_body,
    _change_body,
    _change_bytes,
    _change_path,
    _change_query,
    _change_header,
    _change_method,
)


def body_of(plan: Mapping[str, Any]) -> bytes:
    """Return the body's bytes."""
    if plan["raw"] is not None:
        octets: bytes = plan["raw"].encode("latin-1")
        return octets
    return b"" if plan["body"] is None else json.dumps(plan["body"]).encode()


def request_of(plan: Mapping[str, Any]) -> bytes:
    """Return the request's bytes."""
    path = plan["path"]
    for name, value in plan["in_path"].items():
        path = path.replace("{" + name + "}", quote(str(value), safe="", errors="surrogatepass"))
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, values in plan["query"].items() for value in values)
    body = body_of(plan)
    headers = {
        "Host": "127.0.0.1",
        "Connection": "close",
        **({"Content-Length": str(len(body))} if body or plan["method"] != "GET" else {}),
    }
    if "Transfer-Encoding" in plan["headers"] and "Content-Length" not in plan["headers"]:
        headers.pop("Content-Length", None)
    headers |= {name: value for name, value in plan["headers"].items() if isinstance(value, str)}
    lines = [
        f"{plan['method']} {path}{'?' if query else ''}{query} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    head = "\r\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines) + "\r\n\r\n"
    if headers.get("Transfer-Encoding") == "chunked" and plan["raw"] is None:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return head.encode("latin-1", "replace") + body


def _quoted(value: object) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


class HttpApi:
    """Sends requests to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def ask(self, plan: Mapping[str, Any]) -> int:
        """Return the status of the answer; 0 if the server closes the connection instead, or the request does not end."""
        is_unfinished = not FRAMING.isdisjoint(plan["headers"])
        status, _ = await self.exchange(request_of(plan), UNFINISHED_S if is_unfinished else None)
        assert status < 500 or status in ACCEPTABLE, f"status {status}"
        return status

    async def exchange(self, request: bytes, wait_s: float | None = None) -> tuple[int, bytes]:
        """Send the bytes of a request; return status and bytes of the answer, or of what has come after `wait_s`."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        answer = bytearray()
        try:
            async with asyncio.timeout(wait_s or ANSWER_S):
                writer.write(request)
                while piece := await reader.read(65536):
                    answer += piece
                    assert len(answer) < ANSWER_BYTES_MAX, "an endless answer"
        except ConnectionError:
            pass
        except TimeoutError:
            assert wait_s is not None, "no answer"
        finally:
            writer.transport.abort()
        return (int(answer[9:12]) if answer[:5] == b"HTTP/" else 0), bytes(answer)

    async def document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        status, answer = await self.exchange(
            b"GET /openapi.json HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer.split(b"\r\n\r\n", 1)[1])
        return found

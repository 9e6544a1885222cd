"""Load over HTTP by third-party clients (requests, aiohttp, curl), and their reaction to a server that drains.

Several addresses stand for a load balancer. A client goes to the next address when its connection is refused, or its answer says
`Connection: close`; neither is a failure. Failures are all other errors: a status that the protocol does not define, or a connection
that breaks while a request is in flight.
"""

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import requests
from typing_extensions import override

from faults.checking import Acknowledged, Name, Read, name_of
from faults.load import Client
from faults.waiting import pause

TIMEOUT_S = 60.0
BATCH_COUNT = 10
RETRY_S = 0.05
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}


class HttpClient(Client):
    """A thread that talks to one of several servers at a time."""

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        super().__init__(name, "", "", {})
        self._urls = list(urls)
        self._session = requests.Session()
        self.request_count = 0
        self.moves = 0
        """How often it went to the next server."""
        self.broken: list[str] = []
        """Requests that failed, and why."""

    @property
    def url(self) -> str:
        """URL of the current server."""
        return self._urls[0]

    def move(self) -> None:
        """Go to the next server, over a new connection."""
        self.moves += 1
        self._urls.append(self._urls.pop(0))
        self._session.close()

    def ask(self, method: str, url: str, **options: Any) -> requests.Response | None:
        """Send one request; None if it was refused or failed."""
        self.request_count += 1
        try:
            response = self._session.request(method, url, timeout=TIMEOUT_S, **options)
        except requests.ConnectionError as error:
            if "refused" in str(error):
                self.complaints["refused"] += 1
            else:
                self.broken.append(f"{method} {url}: {error}")
            self.move()
            pause(RETRY_S)
            return None
        if response.headers.get("Connection") == "close" and not options.get("stream"):
            self.move()
        return response


class RestProducer(HttpClient):
    """Sends batches of ten by the v2 API, one partition after the other; a record's value is JSON text or bytes."""

    kind = "requests"

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        stream: str,
        partition_count: int,
        *,
        per_second: int = 200,
        form: str = "binary",
    ) -> None:
        super().__init__(name, urls)
        self._stream = stream
        self._partition_count = partition_count
        self._pause_s = BATCH_COUNT / per_second
        self._form = form
        self.acknowledged: list[Acknowledged] = []
        self.failed: dict[Name, str] = {}
        self.sent_count = 0

    @property
    def unknown(self) -> set[Name]:
        """Names that were sent and not acknowledged."""
        return {Name(self.name, at) for at in range(self.sent_count)} - {record.name for record in self.acknowledged}

    @override
    def run(self) -> None:
        batch = 0
        while self.goes_on:
            self._send(batch % self._partition_count)
            batch += 1
            pause(self._pause_s)

    def _send(self, partition: int) -> None:
        numbers = range(self.sent_count, self.sent_count + BATCH_COUNT)
        values = [f"{self.name}.{number}.{partition}" for number in numbers]
        shown = values if self._form == "json" else [base64.b64encode(value.encode()).decode() for value in values]
        body = json.dumps({"records": [{"value": value, "partition": partition} for value in shown]}).encode()
        headers = {"Content-Type": f"application/vnd.kafka.{self._form}.v2+json"}
        self.sent_count += BATCH_COUNT
        sent_s = time.monotonic()
        while (answer := self.post(f"/topics/{self._stream}", body, headers)) is None and self.goes_on:
            if self.broken:
                return  # it may be stored
        if answer is None:
            return
        status, text = answer
        if status != 200:
            self.broken.append(f"status {status}: {text}")
            return
        now_s = time.monotonic()
        for number, result in zip(numbers, json.loads(text)["offsets"], strict=True):
            if result["error_code"] is not None:  # of each record; the request as a whole was understood
                self.broken.append(f"a record: {result['error']}")
                continue
            name = Name(self.name, number)
            self.acknowledged.append(Acknowledged(result["partition"], result["offset"], name, sent_s, now_s))

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return status and body; None if it was refused or failed."""
        response = self.ask("POST", self.url + path, data=body, headers=headers)
        return None if response is None else (response.status_code, response.text)


class CurlProducer(RestProducer):
    """The same with a process of curl, and a connection, for each request."""

    kind = "curl"

    @override
    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        self.request_count += 1
        words = ["curl", "-sS", "--max-time", str(TIMEOUT_S), "-w", "\n%{http_code} %header{connection}"]
        for name, value in headers.items():
            words += ["-H", f"{name}: {value}"]
        done = subprocess.run(
            [*words, "--data-binary", "@-", self.url + path], input=body, capture_output=True, check=False
        )
        if done.returncode == 7:  # could not connect
            self.complaints["refused"] += 1
            self.move()
            return None
        if done.returncode:
            self.broken.append(f"curl {done.returncode}: {done.stderr.decode()}")
            return None
        text, _, end = done.stdout.decode().rpartition("\n")
        status, _, connection = end.partition(" ")
        if connection.strip() == "close":
            self.move()
        return int(status), text


class AiohttpProducer(RestProducer):
    """The same with aiohttp."""

    kind = "aiohttp"

    @override
    def run(self) -> None:
        with asyncio.Runner() as runner:
            self._runner = runner
            self._http: aiohttp.ClientSession = runner.run(_session())
            super().run()
            runner.run(self._http.close())

    @override
    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        self.request_count += 1
        return self._runner.run(self._post(path, body, headers))

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str] | None:
        try:
            async with self._http.post(self.url + path, data=body, headers=headers) as response:
                text = await response.text()
        except aiohttp.ClientConnectorError:
            self.complaints["refused"] += 1
            self.move()
            await asyncio.sleep(RETRY_S)
            return None
        except aiohttp.ClientError as error:
            self.broken.append(repr(error))
            return None
        if response.headers.get("Connection") == "close":
            self.move()
        return response.status, text


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))


class RestMember(HttpClient):
    """A consumer instance that reads, commits what it has read, and is created again on any server if its server no longer has it."""

    def __init__(self, name: str, urls: Sequence[str], stream: str, group: str) -> None:
        super().__init__(name, urls)
        self._stream = stream
        self._group = group
        self.read: list[Read] = []
        self.instances = 0
        self.commit_errors = 0

    @override
    def run(self) -> None:
        while self.goes_on:
            base = self._create()
            while base and self.goes_on and self._poll(base):
                pass
            if base and not self.goes_on:
                self.ask("DELETE", base, headers=V2)

    def _create(self) -> str:
        config = {"format": "binary", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        made = self.ask("POST", f"{self.url}/consumers/{self._group}", data=json.dumps(config), headers=V2)
        if made is None or made.status_code != 200:
            self._note(made)
            return ""
        base = str(made.json()["base_uri"])
        done = self.ask("POST", f"{base}/subscription", data=json.dumps({"topics": [self._stream]}), headers=V2)
        self.instances += 1
        return base if done is not None and done.status_code == 204 else ""

    def _poll(self, base: str) -> bool:
        """Read once and commit; False if the instance no longer exists."""
        headers = {"Accept": "application/vnd.kafka.binary.v2+json"}
        found = self.ask("GET", f"{base}/records?timeout=500", headers=headers)
        if found is None or found.status_code == 404:
            return False
        if found.status_code != 200:
            self._note(found)
            return True
        now_s = time.monotonic()
        for record in found.json():
            name = name_of(base64.b64decode(record["value"]))
            self.read.append(Read(record["partition"], record["offset"], name, now_s))
        if found.json():
            self._commit(base)
        return True

    def _commit(self, base: str) -> None:
        """Commit the read records; retry if the server answers 503."""
        while (done := self.ask("POST", f"{base}/offsets", headers=V2)) is not None and done.status_code == 503:
            self._note(done)
        if done is None or done.status_code != 200:
            self.commit_errors += 1
            self._note(done)

    def _note(self, answer: requests.Response | None) -> None:
        if answer is not None:
            self.complaints[f"{answer.status_code} {answer.text[:120]}"] += 1
        pause(RETRY_S)


class Follower(HttpClient):
    """Follows a partition by server-sent events and reconnects with the last event's id, as a browser's EventSource does."""

    def __init__(self, name: str, urls: Sequence[str], stream: str) -> None:
        super().__init__(name, urls)
        self._stream = stream
        self.read: list[Read] = []
        self.ends = 0
        """Event streams that the server ended."""

    @override
    def run(self) -> None:
        last = ""
        while self.goes_on:
            headers = {"Last-Event-ID": last} if last else {}
            response = self.ask(
                "GET", f"{self.url}/v1/stream/{self._stream}?offset=-1&live=sse", headers=headers, stream=True
            )
            if response is None:
                continue
            if response.status_code != 200:
                self.broken.append(f"status {response.status_code}: {response.text}")
                return
            try:
                for kind, number, data in _events(response):
                    if kind == "data":
                        for value in json.loads(data):
                            self.read.append(Read(0, len(self.read), name_of(value.encode()), time.monotonic()))
                    last = number or last
                    if not self.goes_on:
                        return
            except requests.exceptions.ChunkedEncodingError as error:
                self.broken.append(str(error))
                return
            self.ends += 1
            self.move()


def _events(response: requests.Response) -> Iterator[tuple[str, str, str]]:
    """(event, id, data). Source: WHATWG HTML, server-sent events."""
    kind, number, data = "message", "", []
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "id":
            number = value
        elif field == "data":
            data.append(value)
        elif line == "" and (data or number):
            yield kind, number, "\n".join(data)
            kind, number, data = "message", "", []

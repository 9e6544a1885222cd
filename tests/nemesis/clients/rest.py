"""Clients of Kafka's REST API, version 2, with `requests`: producers that never retry, and group members that commit."""

import base64
import json
from typing import Any

import requests

from nemesis.recording import now
from nemesis.script import STREAM, Script

TIMEOUT_S = 15.0
BATCH_COUNT = 3
GROUP = "rest"
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}


def produce(script: Script) -> None:
    """Produce batches of a few records, each sent once, over one connection until a request fails."""
    pace, batch, session = script.pace(), 0, _Session(script)
    while script.is_running:
        partition = batch % script.partition_count
        names = [f"{script.life}.{batch}.{index}" for index in range(BATCH_COUNT)]
        shown = [{"value": base64.b64encode(name.encode()).decode(), "partition": partition} for name in names]
        operation = script.history.invoke(
            "produce", log=(STREAM, partition), producer=script.life, kind="single", sequence=batch,
            session=session.name, records=[[name] for name in names],
        )  # fmt: skip
        answer = session.ask("POST", f"/topics/{STREAM}", data=json.dumps({"records": shown}), headers=BINARY)
        batch += 1
        offsets = answer.json()["offsets"] if answer is not None and answer.status_code == 200 else []
        if offsets and all(offset["error_code"] is None for offset in offsets):
            script.history.ok(operation, offset=offsets[0]["offset"])
        elif answer is not None and 400 <= answer.status_code < 500 and answer.status_code != 408:
            script.history.fail(operation, f"status {answer.status_code}")
        else:
            script.history.unknown(operation, "none" if answer is None else f"{answer.status_code} {answer.text[:60]}")
            session.move()
        for _ in range(BATCH_COUNT):
            pace.step()


class _Session:
    """A connection to one server at a time."""

    def __init__(self, script: Script) -> None:
        self._script, self._urls = script, [f"http://{address}" for address in script.addresses("rest")]
        self._http = requests.Session()
        self._number = 0

    @property
    def name(self) -> str:
        return f"{self._script.life}-{self._number}"

    @property
    def url(self) -> str:
        return self._urls[0]

    def move(self) -> None:
        """Connect to the next server."""
        self._http.close()
        self._http = requests.Session()
        self._number += 1
        self._urls.append(self._urls.pop(0))

    def ask(self, method: str, path: str, **options: Any) -> requests.Response | None:
        """Send one request; None if it failed."""
        url = path if path.startswith("http") else self.url + path
        try:
            return self._http.request(method, url, timeout=TIMEOUT_S, **options)
        except requests.RequestException as error:
            self._script.history.note(f"rest {method} {type(error).__name__}")
            return None


def be_member(script: Script) -> None:
    """Run a consumer instance of the REST API; create a new one when it is gone."""
    session = _Session(script)
    while script.is_running:
        base = _create(script, session)
        while base and script.is_running and _poll(script, session, base):
            pass
        if base:
            session.ask("DELETE", base, headers=V2)
        else:
            session.move()
            script.pause(0.5)


def _create(script: Script, session: _Session) -> str:
    config = {"format": "binary", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    made = session.ask("POST", f"/consumers/{GROUP}", data=json.dumps(config), headers=V2)
    if made is None or made.status_code != 200:
        return ""
    base = str(made.json()["base_uri"])
    done = session.ask("POST", f"{base}/subscription", data=json.dumps({"topics": [STREAM]}), headers=V2)
    return base if done is not None and done.status_code == 204 else ""


def _poll(script: Script, session: _Session, base: str) -> bool:
    """Read once and commit; False if a new instance is needed."""
    asked = now()
    headers = {"Accept": "application/vnd.kafka.binary.v2+json"}
    found = session.ask("GET", f"{base}/records?timeout=500", headers=headers)
    if found is None or found.status_code != 200:
        script.history.note(f"rest poll {found.status_code if found is not None else 'failed'}")
        return found is not None and found.status_code not in (404, 500, 503)
    by_partition: dict[int, list[tuple[int, str]]] = {}
    for record in found.json():
        name = base64.b64decode(record["value"]).decode()
        by_partition.setdefault(record["partition"], []).append((record["offset"], name))
    for partition, records in by_partition.items():
        operation = script.history.invoke(
            "read", at=asked, log=(STREAM, partition), start=records[0][0], protocol="rest"
        )
        script.history.ok(operation, records=records)
        _commit(script, session, base, partition, records[-1][0])
    return script.random.random() > 0.01


def _commit(script: Script, session: _Session, base: str, partition: int, offset: int) -> None:
    operation = script.history.invoke("commit", group=GROUP, log=(STREAM, partition), offset=offset + 1)
    body = {"offsets": [{"topic": STREAM, "partition": partition, "offset": offset}]}
    done = session.ask("POST", f"{base}/offsets", data=json.dumps(body), headers=V2)
    if done is not None and done.status_code == 200:
        script.history.ok(operation)
    elif done is not None and done.status_code in (404, 409):
        script.history.fail(operation, f"status {done.status_code}")
    else:
        script.history.unknown(operation, "none" if done is None else f"status {done.status_code}")

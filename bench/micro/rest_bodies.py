"""Micro benchmark of Produce bodies in the v2 API: decode, check, and turn values into bytes. CPU time of one thread, best of seven.

PYTHONPATH=servers .venv/bin/python bench/micro/rest_bodies.py
"""

import base64
import json
import time

from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.proxy import formats, models


def binary(body: bytes) -> None:
    """As a request with the content type `binary`."""
    bodies.parse(models.BINARY, body)


def with_json(body: bytes) -> None:
    """As a request with the content type `json`."""
    for at, record in enumerate(bodies.parse(models.JSON, body).records):
        formats.json_in(record.value, f"records[{at}].value")


def main() -> None:
    """Run all measurements."""
    text = base64.b64encode(bytes(100)).decode()
    for name, run, value in (("binary", binary, text), ("json", with_json, {"text": "x" * 88})):
        for record_count, turn_count in ((1, 20_000), (100, 600)):
            body = json.dumps({"records": [{"value": value}] * record_count}).encode()
            best_s = min(turns(run, body, turn_count) for _ in range(7))
            print(f"{name}, records of 100 B: {record_count:>3}  {best_s * 1e6:>8.2f} us per request")


def turns(run: object, body: bytes, count: int) -> float:
    """CPU seconds of one call."""
    assert callable(run)
    start = time.process_time()
    for _ in range(count):
        run(body)
    return (time.process_time() - start) / count


if __name__ == "__main__":
    main()

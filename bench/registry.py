"""Registers schemas for the programs here."""

import json
import urllib.request


def register(registry: str, subject: str, type_: str, schema: str) -> int:
    """Register a schema through the HTTP API; return its id."""
    body = json.dumps({"schemaType": type_, "schema": schema}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{registry}/subjects/{subject}/versions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["id"])

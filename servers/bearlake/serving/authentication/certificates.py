"""The user name in a client certificate (mTLS): its whole distinguished name, or what the configured rules make of it.

Source: RFC 2253 (the text of a distinguished name, as Java prints it); KIP-371 (`ssl.principal.mapping.rules`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import re2

from bearlake.errors import Denied, Invalid

Subject = tuple[tuple[tuple[str, str], ...], ...]
"""A subject as `ssl.SSLObject.getpeercert` returns it: relative distinguished names, the root first."""

SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Attribute types with a short name in RFC 2253."""

_ESCAPED = re.compile(r'([,+"\\<>;])')
_RULE = re.compile(r"RULE:((?:\\/|[^/])*)/((?:\\/|[^/])*)/([LU]?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: names that match `pattern` as a whole become `replacement`, in lower (`L`) or upper (`U`) case."""

    pattern: "re2._Regexp"
    replacement: str
    letters: str


class CertificateNames:
    """Maps subjects to user names by the first rule that matches; DEFAULT stands for the distinguished name itself."""

    def __init__(self, rules: Sequence[str] = ("DEFAULT",)) -> None:
        """Raises `Invalid` for a rule that is neither `DEFAULT` nor `RULE:pattern/replacement/[LU]`."""
        self._rules = [_parsed(rule) for rule in rules]

    def name(self, subject: Subject) -> str:
        """Return the user's name. Raises `Denied` if no rule matches or the name is empty."""
        full = distinguished_name(subject)
        for rule in self._rules:
            found = full if rule is None else _applied(rule, full)
            if found:
                return found
        raise Denied("no certificate rule maps the certificate's subject to a user name")


def distinguished_name(subject: Subject) -> str:
    """Return the subject as RFC 2253 writes it: the most specific attribute first, special characters escaped."""
    parts = ("+".join(f"{SHORT_NAMES.get(kind, kind)}={_escape(value)}" for kind, value in names) for names in subject)
    return ",".join(reversed(list(parts)))


def _escape(value: str) -> str:
    escaped = _ESCAPED.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped


def _parsed(text: str) -> Rule | None:
    if text == "DEFAULT":
        return None
    found = _RULE.fullmatch(text)
    if found is None:
        raise Invalid(
            f"{text!r} is not a rule, expected DEFAULT or RULE:pattern/replacement/, optionally followed by L or U"
        )
    try:
        pattern = re2.compile(found[1].replace("\\/", "/"))
    except re2.error as error:
        raise Invalid(f"the pattern of {text!r} is not a regular expression: {error}") from error
    return Rule(pattern, re.sub(r"\$(\d)", r"\\\1", found[2].replace("\\/", "/")), found[3])


def _applied(rule: Rule, name: str) -> str:
    if rule.pattern.fullmatch(name) is None:
        return ""
    found: str = rule.pattern.sub(rule.replacement, name, count=1)
    return {"L": found.lower(), "U": found.upper()}.get(rule.letters, found)

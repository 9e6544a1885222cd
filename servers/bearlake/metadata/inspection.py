"""What an inspection of a store finds: `bearlake doctor` shows it.

An inspection changes nothing, and does not bring a store's layout up to date. Each backend inspects itself, because only it knows what it
relies on (`metadata/sqlite/inspection.py`, `metadata/postgresql/inspection.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bearlake.metadata.store_copy import RESTORING


class Verdict(StrEnum):
    """How a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but may be slow, or not survive what the documentation promises."""
    FAILURE = "failure"
    """It does not work, or loses data."""
    SKIPPED = "skipped"
    """It could not be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked."""

    subject: str
    verdict: Verdict
    detail: str
    advice: str = ""
    """What to change; empty if nothing."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Measured numbers, by name with unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The findings about a store."""

    findings: Sequence[Finding]
    can_open: bool
    """Whether this program can open the store without changing its layout."""


def layout_finding(present: int, version: int, oldest: int) -> Finding:
    """Compare a store's layout with that of this program; `present` 0: the store has none yet."""
    known = f"layout {present}"
    if present == 0:
        return Finding(
            subject="layout",
            verdict=Verdict.WARNING,
            detail="the store is empty",
            advice="the first server makes the tables when it starts",
        )
    if present == version:
        return Finding(subject="layout", verdict=Verdict.OK, detail=f"{known}, that of this program")
    if present == RESTORING:
        return failure("layout", "a restore into the store has not ended", "run `bearlake restore` again")
    if present > version:
        return Finding(
            subject="layout",
            verdict=Verdict.FAILURE,
            detail=f"{known}; this program knows layouts up to {version}",
            advice="use the version of Bearlake that the servers have, or a newer one",
        )
    if present < oldest:
        return Finding(
            subject="layout",
            verdict=Verdict.FAILURE,
            detail=f"{known}; this program upgrades layouts from {oldest} on",
            advice=f"start a server of the version with layout {oldest} once, then one of this version",
        )
    return Finding(
        subject="layout",
        verdict=Verdict.WARNING,
        detail=f"{known}, older than layout {version} of this program",
        advice="the first server of this version upgrades it when it starts: see docs/operations.md, Upgrades",
    )


def ok(subject: str, detail: str, **figures: float) -> Finding:
    """Return a finding without a problem."""
    return Finding(subject=subject, verdict=Verdict.OK, detail=detail, figures=figures)


def warning(subject: str, detail: str, advice: str, **figures: float) -> Finding:
    """Return a finding that should be changed."""
    return Finding(subject=subject, verdict=Verdict.WARNING, detail=detail, advice=advice, figures=figures)


def failure(subject: str, detail: str, advice: str, **figures: float) -> Finding:
    """Return a finding that must be changed."""
    return Finding(subject=subject, verdict=Verdict.FAILURE, detail=detail, advice=advice, figures=figures)


def skipped(subject: str, detail: str) -> Finding:
    """Return what could not be checked, with the reason."""
    return Finding(subject=subject, verdict=Verdict.SKIPPED, detail=detail)

"""Leader election with a Lease: one operator leads, others stand by. A leader that cannot renew the Lease in time stops.

Source: Kubernetes, coordination.k8s.io/v1; the rules are those of client-go's leader election.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime

from bearlake_operator import metrics
from bearlake_operator.errors import Conflict, OperatorError
from bearlake_operator.kube import KINDS, KubeClient, Resource

log = logging.getLogger(__name__)

NAME = "bearlake-operator"
RELEASE_TIMEOUT_S = 3.0


class LeadershipLost(Exception):
    """Another operator leads, or may lead by now: this process must stop."""


class LeaderElector:
    """Acquires and renews the Lease for this process."""

    def __init__(self, kube: KubeClient, identity: str, lease_s: int) -> None:
        self._kube = kube
        self._identity = identity
        self._lease_s = lease_s
        self._renewed_at = 0.0
        self._written: Resource | None = None
        """The Lease as this process last wrote it. While no other process writes it, a renewal is one request."""
        self._observed: tuple[str, float] = ("", 0.0)
        """The other holder's last observed record, and the monotonic time of that observation. Clocks of hosts are never compared."""

    @property
    def age_s(self) -> float:
        """Seconds since the last renewal."""
        return time.monotonic() - self._renewed_at

    async def acquire(self) -> None:
        """Wait until this process leads."""
        while not await self.attempt(self._lease_s / 3):  # noqa: ASYNC110 - the Lease is polled, not watched
            await asyncio.sleep(self._lease_s / 5)
        metrics.IS_LEADER.set(1)
        log.info("acquired the leadership", extra={"identity": self._identity})

    async def renew(self) -> None:
        """Renew until cancelled. Raises `LeadershipLost` when two thirds of the lease's duration have passed since the last renewal."""
        limit_s, pause_s = self._lease_s * 2 / 3, self._lease_s / 5
        while True:
            await asyncio.sleep(max(0.0, min(pause_s, limit_s - self.age_s)))
            is_renewed = await self.attempt(limit_s - self.age_s)
            pause_s = self._lease_s / (5 if is_renewed else 15)
            if self.age_s >= limit_s:
                metrics.IS_LEADER.set(0)
                raise LeadershipLost(f"the Lease {NAME} could not be renewed for {self.age_s:.0f} s")

    async def release(self) -> None:
        """Release the Lease so that another operator can lead at once. Gives up after `RELEASE_TIMEOUT_S`."""
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                lease = await self._kube.get("Lease", self._kube.namespace, NAME)
                if lease is not None and lease.get("spec", {}).get("holderIdentity") == self._identity:
                    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._kube.replace({**lease, "spec": spec})
        except (OperatorError, TimeoutError) as error:
            log.warning("cannot release the Lease", extra={"error": repr(error)})

    async def attempt(self, timeout_s: float) -> bool:
        """Try once, for at most `timeout_s`, to acquire or renew the Lease. Returns True if this process holds it."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(min(timeout_s, self._lease_s / 3)):
                lease = self._written or await self._kube.get("Lease", self._kube.namespace, NAME)
                if lease is not None and not self._may_take(lease):
                    return False
                self._written = await self._kube.replace(self._record(lease))
        except (OperatorError, TimeoutError) as error:
            if isinstance(error, OperatorError):
                self._written = None
            if not isinstance(error, Conflict):
                log.warning("cannot renew the Lease", extra={"error": repr(error)})
            return False
        self._renewed_at = started
        return True

    def _may_take(self, lease: Resource) -> bool:
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        record = f"{holder} {spec.get('renewTime')}"
        if self._observed[0] != record:
            self._observed = (record, time.monotonic())
        duration_s: float = spec.get("leaseDurationSeconds", self._lease_s)
        return time.monotonic() - self._observed[1] > duration_s

    def _record(self, lease: Resource | None) -> Resource:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(lease.get("spec", {})) if lease else {}
        is_new = spec.get("holderIdentity") != self._identity
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._lease_s,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (1 if is_new and lease else 0),
        }
        if is_new:
            spec["acquireTime"] = now
        metadata = lease["metadata"] if lease else {"name": NAME, "namespace": self._kube.namespace}
        return {"apiVersion": KINDS["Lease"].api_version, "kind": "Lease", "metadata": metadata, "spec": spec}

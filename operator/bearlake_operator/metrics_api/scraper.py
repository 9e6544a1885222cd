"""Scrapes all pods of the data layers periodically: the counters of servers, and the backlog of each Compactor.

A scrape lists the pods and sends each of them one request, `CONCURRENCY_MAX` at a time, with a timeout of `TIMEOUT_S`. State of pods that
are gone is dropped, so memory is bounded by the number of pods. A pod that does not answer keeps its samples until they are too old.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from bearlake_operator import metrics
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.kube import KubeClient, Resource
from bearlake_operator.manifests import labels, server_settings
from bearlake_operator.metrics_api import rates
from bearlake_operator.metrics_api.rates import Rate, RateTracker, Sample
from bearlake_operator.metrics_api.selectors import Selector
from bearlake_operator.settings import COMPACTOR, DataLayer, Settings
from bearlake_operator.trust import AUTHORITIES, Trust, trust_of

log = logging.getLogger(__name__)

PODS = f"{labels.MANAGED_BY}={labels.OPERATOR}"
TIMEOUT_S = 5.0
CONCURRENCY_MAX = 64
RESPONSE_BYTES_MAX = 8 << 20
TRIED_WORKER_COUNT_MAX = 3
"""Workers of a Compactor that are tried until one reports the backlog."""
AGE_PERIOD_COUNT = 3
"""Periods after which a value is too old to be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running pod. Selectors match its `labels`."""

    uid: str
    name: str
    address: str
    labels: Mapping[str, str]
    streams: Sequence[str]
    """Patterns of the streams that a worker compacts; empty means all."""
    is_ready: bool

    @property
    def tier(self) -> str:
        """The protocol, or `compactor`."""
        return self.labels.get(labels.COMPONENT, "")

    @property
    def data_layer(self) -> str:
        """The name of the data layer."""
        return self.labels.get(labels.DATA_LAYER, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The uncompacted bytes of a Compactor's streams at one time, with the labels of the Compactor's pods."""

    labels: Mapping[str, str]
    size_bytes: int
    at_s: float
    time: datetime


class Scraper:
    """The last values of all pods. Call `close` when done."""

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        tokens: Path,
        *,
        period_s: float,
        window_s: float,
        port: int = server_settings.ADMIN_PORT,
        authorities: Path = AUTHORITIES,
    ) -> None:
        """`tokens` is a folder with the admin tokens, `<data layer>/<key>`; `port` is that of the pods' admin API.

        `authorities` is a folder with `<data layer>/ca.crt`. Raises `ValueError`.
        """
        if not 0 < 2 * period_s <= window_s:
            raise ValueError(f"the window ({window_s} s) must be at least two periods ({period_s} s) long")
        self._settings = settings
        self._kube = kube
        self._tokens = tokens
        self._trusts = {name: trust_of(name, layer, authorities) for name, layer in settings.data_layers.items()}
        self._known_tokens: dict[str, tuple[str, ...]] = {}
        self._port = port
        self._period_s = period_s
        self._age_max_s = AGE_PERIOD_COUNT * period_s
        self._rates = RateTracker(window_s, self._age_max_s + TIMEOUT_S)
        self._pods: Sequence[Pod] = ()
        self._backlogs: dict[str, Backlog] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY_MAX)
        self._failed_uids: set[str] = set()
        self._scrape_count = 0
        self.has_rates = asyncio.Event()
        """Set after the second scrape: a rate needs two samples."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def pods(self, selector: Selector) -> list[Pod]:
        """The selected pods of servers."""
        return [pod for pod in self._pods if pod.tier in rates.COUNTERS and selector(pod.labels)]

    def rates(self, pods: Sequence[Pod], metric: str) -> dict[str, Rate]:
        """The rates of a metric by pod name. Pods without a known rate are left out."""
        now_s = time.monotonic()
        found = {pod.name: self._rates.rate(pod.uid, metric, now_s) for pod in pods}
        return {name: rate for name, rate in found.items() if rate is not None}

    def backlogs(self, selector: Selector) -> tuple[list[Backlog], bool]:
        """The known backlogs of the selected Compactors, and whether all of them are known."""
        now_s = time.monotonic()
        selected = {name for name, pods in _compactors(self._pods).items() if selector(pods[0].labels)}
        known = [self._backlogs[name] for name in sorted(selected & self._backlogs.keys())]
        fresh = [backlog for backlog in known if now_s - backlog.at_s <= self._age_max_s + TIMEOUT_S]
        return fresh, len(fresh) == len(selected)

    async def scrape(self) -> float:
        """Scrape all pods once; returns the seconds until the next scrape. Raises `Unavailable`, `Invalid` if pods cannot be listed."""
        listing = await self._kube.list("Pod", self._kube.namespace, PODS)
        self._pods = [pod for pod in map(_pod, listing.resources) if pod is not None]
        compactors = _compactors(self._pods)
        self._rates.retain({pod.uid for pod in self._pods})
        self._backlogs = {name: backlog for name, backlog in self._backlogs.items() if name in compactors}
        self._failed_uids &= {pod.uid for pod in self._pods}
        async with asyncio.TaskGroup() as group:
            for pod in self._pods:
                if pod.tier in rates.COUNTERS:
                    group.create_task(self._sample(pod))
            for name, pods in compactors.items():
                group.create_task(self._read_backlog(name, pods))
        metrics.METRICS_API_PODS.set(len(self._rates))
        self._scrape_count += 1
        if self._scrape_count == 2:
            self.has_rates.set()
        return self._period_s

    async def _sample(self, pod: Pod) -> None:
        text = await self._get(pod, "/metrics")
        if text is None:
            return
        try:
            counts = rates.counts(pod.tier, text)
        except Invalid as error:
            self._report_failure(pod, str(error))
            return
        self._rates.record(pod.uid, Sample(at_s=time.monotonic(), time=datetime.now(UTC), counts=counts))

    async def _read_backlog(self, name: str, pods: Sequence[Pod]) -> None:
        """Read the backlog from any ready worker of the Compactor: all workers report the same."""
        for pod in [pod for pod in pods if pod.is_ready][:TRIED_WORKER_COUNT_MAX]:
            query = urlencode([("limit", "1"), *(("streams", pattern) for pattern in pod.streams)])
            text = await self._get(pod, f"/v1/compaction/backlog?{query}")
            if text is None:
                continue
            try:
                size_bytes = int(json.loads(text)["size_bytes"])
            except (ValueError, KeyError, TypeError) as error:
                self._report_failure(pod, f"not a backlog: {error!r}")
                continue
            compactor_labels = {key: pod.labels[key] for key in (labels.DATA_LAYER, labels.COMPACTOR)}
            self._backlogs[name] = Backlog(
                labels=compactor_labels, size_bytes=size_bytes, at_s=time.monotonic(), time=datetime.now(UTC)
            )
            return

    async def _get(self, pod: Pod, path: str) -> str | None:
        """The response of the pod's admin API, None after a failure."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        async with self._slots:
            started = time.perf_counter()
            try:
                layer = self._layer(pod.data_layer)
                text = await self._authenticated_get(
                    f"{layer.admin.scheme}://{host}:{self._port}{path}",
                    self._current_tokens(pod.data_layer, layer),
                    self._trusts[pod.data_layer],
                )
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, OperatorError) as error:
                metrics.METRICS_API_SCRAPES.labels("failed").inc()
                self._report_failure(pod, repr(error))
                return None
            metrics.METRICS_API_SCRAPES.labels("done").inc()
            metrics.METRICS_API_SCRAPE_SECONDS.observe(time.perf_counter() - started)
        self._failed_uids.discard(pod.uid)
        return text

    async def _authenticated_get(self, url: str, tokens: Sequence[str], trust: Trust) -> str:
        """The response for the first token that is accepted. Raises `Unavailable` if none is, and aiohttp's errors."""
        status = 0
        for token in tokens:
            headers = {"Authorization": f"Bearer {token}"}
            async with self._session.get(
                url, headers=headers, allow_redirects=False, ssl=trust.context(), server_hostname=trust.server_name
            ) as response:
                status = response.status
                if status == 200:
                    return await _text(response)
            if status != 401:
                break
        raise Unavailable(f"status {status}")

    def _layer(self, name: str) -> DataLayer:
        layer = self._settings.data_layers.get(name)
        if layer is None:
            raise Invalid(f"the data layer {name!r} is not configured")
        return layer

    def _current_tokens(self, data_layer: str, layer: DataLayer) -> Sequence[str]:
        """The token in the file, and the previous one: a rotated Secret reaches each pod at a different time.

        Raises `OSError`.
        """
        token = (self._tokens / data_layer / layer.admin.key).read_text(encoding="utf-8").strip()
        known = self._known_tokens.get(data_layer, ())
        if token not in known[:1]:
            known = (token, *known[:1])
            self._known_tokens[data_layer] = known
        return known

    def _report_failure(self, pod: Pod, problem: str) -> None:
        """Log the first failure of a pod; further ones are not logged until it answers again."""
        if pod.uid not in self._failed_uids:
            self._failed_uids.add(pod.uid)
            log.warning("cannot scrape a pod", extra={"pod": pod.name, "error": problem})


async def _text(response: aiohttp.ClientResponse) -> str:
    """The body of a response. Raises `Unavailable` if it is too long."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            raise Unavailable(f"the response has more than {RESPONSE_BYTES_MAX} bytes")
    return content.decode(errors="replace")


def _compactors(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """The workers of each Compactor, by the name of the Compactor's objects."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.tier == COMPACTOR and labels.COMPACTOR in pod.labels:
            found.setdefault(pod.labels[labels.COMPACTOR], []).append(pod)
    return found


def _pod(resource: Resource) -> Pod | None:
    """A pod as a value; None if it is not running or is being deleted."""
    metadata, status = resource["metadata"], resource.get("status", {})
    if status.get("phase") != "Running" or not status.get("podIP") or "deletionTimestamp" in metadata:
        return None
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        address=status["podIP"],
        labels=metadata.get("labels", {}),
        streams=_streams(metadata.get("annotations", {}).get(labels.STREAMS, "[]")),
        is_ready=conditions.get("Ready") == "True",
    )


def _streams(text: str) -> Sequence[str]:
    """The patterns in an annotation; empty if it is malformed. (The operator reverts manual edits.)"""
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return [str(pattern) for pattern in found] if isinstance(found, list) else ()

"""Looks at all pods of the data layers, round after round: what servers counted, and what waits for each Compactor's workers.

A round lists the pods and asks each of them once, `OPEN_MAX` at a time, each for at most `TIMEOUT_S`. Pods come and go with the list, so
that what is remembered is bounded by the pods that there are. A pod that does not answer keeps its samples until they are too old.
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
from bearlake_operator.kube import Kube, Resource
from bearlake_operator.manifests import config, labels
from bearlake_operator.metrics_api import readings
from bearlake_operator.metrics_api.readings import Rate, Readings, Sample
from bearlake_operator.metrics_api.selectors import Selector
from bearlake_operator.settings import COMPACTOR, Settings

log = logging.getLogger(__name__)

PODS = f"{labels.MANAGED_BY}={labels.OPERATOR}"
TIMEOUT_S = 5.0
OPEN_MAX = 64
ANSWER_BYTES_MAX = 8 << 20
ASKED_COUNT_MAX = 3
"""Workers of a Compactor that are asked until one answers."""
AGE_ROUNDS = 3
"""Rounds after which what a pod said is too old to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running pod. `labels` are those that a selector may ask for."""

    uid: str
    name: str
    address: str
    labels: Mapping[str, str]
    streams: Sequence[str]
    """Patterns of the streams that a worker compacts; none: all."""
    is_ready: bool

    @property
    def tier(self) -> str:
        """Protocol, or `compactor`."""
        return self.labels.get(labels.COMPONENT, "")

    @property
    def data_layer(self) -> str:
        """Name of its data layer."""
        return self.labels.get(labels.DATA_LAYER, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Bytes that wait for the workers of a Compactor, whose labels these are, at a time."""

    labels: Mapping[str, str]
    size_bytes: int
    at_s: float
    time: datetime


class Scraper:
    """What the pods said last. `close` comes last."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        tokens: Path,
        *,
        period_s: float,
        window_s: float,
        port: int = config.ADMIN_PORT,
    ) -> None:
        """`tokens`: folder with each data layer's admin token, `<data layer>/<key>`; `port` of pods' admin API. Raises `ValueError`."""
        if not 0 < 2 * period_s <= window_s:
            raise ValueError(f"a window of {window_s} s must hold two periods of {period_s} s")
        self._settings = settings
        self._kube = kube
        self._tokens = tokens
        self._known_tokens: dict[str, tuple[str, ...]] = {}
        self._port = port
        self._period_s = period_s
        self._age_max_s = AGE_ROUNDS * period_s
        self._readings = Readings(window_s, self._age_max_s + TIMEOUT_S)
        self._pods: Sequence[Pod] = ()
        self._backlogs: dict[str, Backlog] = {}
        self._open = asyncio.Semaphore(OPEN_MAX)
        self._silent: set[str] = set()
        self._round_count = 0
        self.settled = asyncio.Event()
        """Set once pods were looked at twice: rates are known of those that there are."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def pods(self, selector: Selector) -> list[Pod]:
        """The servers' pods that are selected."""
        return [pod for pod in self._pods if pod.tier in readings.COUNTERS and selector(pod.labels)]

    def rates(self, pods: Sequence[Pod], metric: str) -> dict[str, Rate]:
        """How fast pods count, by their names; without those of which it is not known."""
        now_s = time.monotonic()
        found = {pod.name: self._readings.rate(pod.uid, metric, now_s) for pod in pods}
        return {name: rate for name, rate in found.items() if rate is not None}

    def backlogs(self, selector: Selector) -> tuple[list[Backlog], bool]:
        """The backlogs of the Compactors that are selected, and whether that of each of them is known."""
        now_s = time.monotonic()
        wanted = {name for name, one in _compactors(self._pods).items() if selector(one[0].labels)}
        known = [self._backlogs[name] for name in sorted(wanted & self._backlogs.keys())]
        fresh = [one for one in known if now_s - one.at_s <= self._age_max_s + TIMEOUT_S]
        return fresh, len(fresh) == len(wanted)

    async def round(self) -> float:
        """Look at all pods once; returns when to look again (s). Raises `Unavailable`, `Invalid`: the pods cannot be listed."""
        listing = await self._kube.list("Pod", self._kube.namespace, PODS)
        self._pods = [pod for pod in map(_pod, listing.resources) if pod is not None]
        compactors = _compactors(self._pods)
        self._readings.keep({pod.uid for pod in self._pods})
        self._backlogs = {name: one for name, one in self._backlogs.items() if name in compactors}
        self._silent &= {pod.uid for pod in self._pods}
        async with asyncio.TaskGroup() as group:
            for pod in self._pods:
                if pod.tier in readings.COUNTERS:
                    group.create_task(self._sample(pod))
            for name, pods in compactors.items():
                group.create_task(self._ask_backlog(name, pods))
        metrics.METRICS_API_PODS.set(len(self._readings))
        self._round_count += 1
        if self._round_count == 2:
            self.settled.set()
        return self._period_s

    async def _sample(self, pod: Pod) -> None:
        text = await self._ask(pod, "/metrics")
        if text is None:
            return
        try:
            counts = readings.counts(pod.tier, text)
        except Invalid as error:
            self._tell(pod, str(error))
            return
        self._readings.record(pod.uid, Sample(at_s=time.monotonic(), time=datetime.now(UTC), counts=counts))

    async def _ask_backlog(self, name: str, pods: Sequence[Pod]) -> None:
        """Of any ready worker of the Compactor: all see the same."""
        for pod in [pod for pod in pods if pod.is_ready][:ASKED_COUNT_MAX]:
            query = urlencode([("limit", "1"), *(("streams", pattern) for pattern in pod.streams)])
            text = await self._ask(pod, f"/v1/compaction/backlog?{query}")
            if text is None:
                continue
            try:
                size_bytes = int(json.loads(text)["size_bytes"])
            except (ValueError, KeyError, TypeError) as error:
                self._tell(pod, f"no backlog: {error!r}")
                continue
            shown = {key: pod.labels[key] for key in (labels.DATA_LAYER, labels.COMPACTOR)}
            self._backlogs[name] = Backlog(
                labels=shown, size_bytes=size_bytes, at_s=time.monotonic(), time=datetime.now(UTC)
            )
            return

    async def _ask(self, pod: Pod, path: str) -> str | None:
        """What the pod's admin API answers, None when it does not."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        async with self._open:
            started = time.perf_counter()
            try:
                text = await self._answer(f"http://{host}:{self._port}{path}", self._present_tokens(pod.data_layer))
            except (aiohttp.ClientError, TimeoutError, OSError, OperatorError) as error:
                metrics.METRICS_API_SCRAPES.labels("failed").inc()
                self._tell(pod, repr(error))
                return None
            metrics.METRICS_API_SCRAPES.labels("done").inc()
            metrics.METRICS_API_SCRAPE_SECONDS.observe(time.perf_counter() - started)
        self._silent.discard(pod.uid)
        return text

    async def _answer(self, url: str, tokens: Sequence[str]) -> str:
        """The answer with the first token that is accepted. Raises `Unavailable` when there is none, or what aiohttp does."""
        status = 0
        for token in tokens:
            async with self._session.get(url, headers={"Authorization": f"Bearer {token}"}) as response:
                status = response.status
                if status == 200:
                    return await _text(response)
            if status != 401:
                break
        raise Unavailable(f"status {status}")

    def _present_tokens(self, data_layer: str) -> Sequence[str]:
        """What the file has now, and what it had before: a rotated Secret reaches each pod at its own time. Raises `Invalid`, `OSError`."""
        layer = self._settings.data_layers.get(data_layer)
        if layer is None:
            raise Invalid(f"the data layer {data_layer!r} is not configured")
        token = (self._tokens / data_layer / layer.admin.key).read_text(encoding="utf-8").strip()
        known = self._known_tokens.get(data_layer, ())
        if token not in known[:1]:
            known = (token, *known[:1])
            self._known_tokens[data_layer] = known
        return known

    def _tell(self, pod: Pod, problem: str) -> None:
        """Say once that a pod cannot be read."""
        if pod.uid not in self._silent:
            self._silent.add(pod.uid)
            log.warning("a pod cannot be read", extra={"pod": pod.name, "error": problem})


async def _text(response: aiohttp.ClientResponse) -> str:
    """The answer. Raises `Unavailable` for one that is too long."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > ANSWER_BYTES_MAX:
            raise Unavailable(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    return content.decode(errors="replace")


def _compactors(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """The workers of each Compactor by the name of its objects."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.tier == COMPACTOR and labels.COMPACTOR in pod.labels:
            found.setdefault(pod.labels[labels.COMPACTOR], []).append(pod)
    return found


def _pod(resource: Resource) -> Pod | None:
    """A pod that runs and is not about to go, as a value."""
    metadata, status = resource["metadata"], resource.get("status", {})
    if status.get("phase") != "Running" or not status.get("podIP") or "deletionTimestamp" in metadata:
        return None
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        address=status["podIP"],
        labels=metadata.get("labels", {}),
        streams=_streams(metadata.get("annotations", {}).get(labels.STREAMS, "[]")),
        is_ready=conditions.get("Ready") == "True",
    )


def _streams(text: str) -> Sequence[str]:
    """The patterns in an annotation; the operator undoes what others write there."""
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return [str(pattern) for pattern in found] if isinstance(found, list) else ()

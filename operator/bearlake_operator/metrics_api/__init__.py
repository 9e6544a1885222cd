"""Bearlake's metrics for autoscalers: a server of the Kubernetes APIs `custom.metrics.k8s.io` and `external.metrics.k8s.io`.

It is a process of its own (`python -m bearlake_operator.metrics_api`) and does not take part in leader election: every replica scrapes
all pods and can answer, so an autoscaler never waits for a new leader.

    API server ──(front proxy, TLS)──> server.py ──> responses.py <── rates.py <── scraper.py ──> pods' /metrics, admin API

rates.py        rates of the pods' counters (pure)
selectors.py    label selectors (pure)
responses.py    response bodies of the two APIs (pure)
scraper.py      scrapes the pods periodically
front_proxy.py  authenticates the API server's front proxy
server.py       serves the APIs over TLS
process.py      the process

A pod that could not be scraped has no value. A value of zero would scale down a tier that may be overloaded; without a value, the
autoscaler keeps the number of pods.

Sources: KEP-117 and KEP-2702 (the metrics APIs), k8s.io/metrics `custom_metrics/v1beta2` and `external_metrics/v1beta1`, "Configure the
aggregation layer" in the Kubernetes documentation.
"""

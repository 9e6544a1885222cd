"""Bearlake's metrics for autoscalers: what Kubernetes asks of `custom.metrics.k8s.io` and `external.metrics.k8s.io`.

A process of its own (`python -m bearlake_operator.metrics_api`), because an autoscaler must not wait for who leads: every replica
looks at all pods and can answer.

    API server ──(front proxy, TLS)──> server.py ──> answers.py <── readings.py <── scraper.py ──> pods' /metrics, admin API

readings.py     what pods counted, and the rates of it (pure)
selectors.py    label selectors (pure)
answers.py      the documents of the two APIs (pure)
scraper.py      looks at the pods, round after round
front_proxy.py  who may ask: the API server's front proxy, and whom it speaks for
server.py       the APIs over TLS
process.py      all of it together

A pod that could not be read has no value: an answer of zero would shrink what is too small already. Whoever asks then keeps its number.
Sources: KEP-117 and KEP-2702 (the metrics APIs), k8s.io/metrics `custom_metrics/v1beta2` and `external_metrics/v1beta1`,
"Configure the aggregation layer" of the Kubernetes documentation.
"""

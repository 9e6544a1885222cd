"""Confluent's REST Proxy API v3: clusters, topics, configs, partitions, brokers, records, consumer groups and their lag.

Source: Confluent, "REST Proxy API Reference v3" (public documentation).
"""

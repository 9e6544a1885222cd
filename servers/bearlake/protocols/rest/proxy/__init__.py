"""Confluent's REST Proxy API v2.

Source: Confluent, "REST Proxy API Reference v2" (public documentation).
"""

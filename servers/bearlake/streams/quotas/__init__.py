"""Quotas: how much clients may use, over all protocols. Source: KIP-13, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612."""

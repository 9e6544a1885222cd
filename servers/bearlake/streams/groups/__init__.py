"""Consumer groups: one coordinator per group, found by a lease, with its membership saved at each rebalance."""

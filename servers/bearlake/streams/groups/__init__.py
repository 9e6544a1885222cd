"""Consumer groups: each group has one coordinator, the server that holds the group's lease; it saves the membership at each rebalance."""

"""`bearlake top`: rates, lag, freshness and cost of a deployment, live."""

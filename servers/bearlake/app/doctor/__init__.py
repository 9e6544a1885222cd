"""`bearlake doctor`: examines the stores, this machine and the servers of a deployment, and says what to change."""

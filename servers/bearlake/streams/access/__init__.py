"""Access control: the rules of the deployment, compiled for the hot path. Source: KIP-11, KIP-290, Kafka's `StandardAuthorizer`."""

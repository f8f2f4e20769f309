"""The second region of a stack on Google Cloud: facts, replication, readiness, failover and failback."""

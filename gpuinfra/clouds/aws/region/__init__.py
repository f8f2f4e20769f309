"""The second region of a stack on AWS: facts, replication, readiness, failover and failback."""

"""The second region of a stack on Azure: facts, replication, readiness, failover and failback."""

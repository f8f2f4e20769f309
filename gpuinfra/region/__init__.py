"""The second region of a stack: the clone of a declaration, its readiness, failover and failback."""

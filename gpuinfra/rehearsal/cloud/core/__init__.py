"""What every cloud has in common: Pulumi's protocol, the store, ids, checks, groups of machines, the HTTP server."""

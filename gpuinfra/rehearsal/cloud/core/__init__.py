"""What all clouds share: Pulumi's protocol, the store, ids, checks, groups of machines, the HTTP server. It names no cloud."""

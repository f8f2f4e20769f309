"""Code that all clouds share: Pulumi's protocol, the store, IDs, checks, instance groups and the HTTP server. Contains
no cloud-specific code."""

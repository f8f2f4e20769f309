"""Pulumi components of Azure. They translate a plan; only the modules of this package import the SDK of Azure."""

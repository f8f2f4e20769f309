"""Pulumi components for Azure. They create the resources of a plan. Only the modules of this package import the Azure SDK."""

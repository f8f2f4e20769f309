"""Pulumi components for Google Cloud. They create the resources of a plan and make no decisions. Importing a module of this package imports the SDK."""

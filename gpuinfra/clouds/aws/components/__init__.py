"""Pulumi components of AWS. They translate a plan and decide nothing; the SDK is imported with the first module of this package."""

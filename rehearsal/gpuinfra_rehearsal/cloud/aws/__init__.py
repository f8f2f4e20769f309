"""The stand-in for AWS."""

"""The stand-in for Google Cloud."""

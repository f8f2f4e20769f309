"""The stand-in for Azure."""

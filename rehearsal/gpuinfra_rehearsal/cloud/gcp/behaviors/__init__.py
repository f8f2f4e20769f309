"""Behavior of individual Google Cloud resource types."""

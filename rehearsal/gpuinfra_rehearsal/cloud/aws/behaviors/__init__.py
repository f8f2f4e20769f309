"""Behavior of individual AWS resource types."""

"""Behavior of individual Azure resource types."""

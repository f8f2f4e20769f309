"""Tests of the alert rules."""

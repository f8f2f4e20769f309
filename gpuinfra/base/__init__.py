"""Helpers that several packages share: errors, findings, names, safe text, files. This package imports nothing else of gpuinfra."""

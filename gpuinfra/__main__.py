"""Runs the `gpuinfra` command as `python -m gpuinfra`."""

from gpuinfra.cli import run

run()

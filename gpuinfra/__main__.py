"""`python -m gpuinfra` is the `gpuinfra` command."""

from gpuinfra.cli import run

run()

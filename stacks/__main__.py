"""The program of every stack in this folder: what its file declares is what it gets."""

import pulumi

from gpuinfra import GpuCluster
from gpuinfra.quiet import say_less
from gpuinfra.stack import declared

say_less()
spec = declared()
for name, value in GpuCluster(spec.name, spec).outputs.items():
    pulumi.export(name, value)

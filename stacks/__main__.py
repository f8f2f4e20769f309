"""The Pulumi program of every stack in this folder. The stack file declares the cluster."""

import pulumi

from gpuinfra import GpuCluster
from gpuinfra.stack import declared

spec = declared()
for name, value in GpuCluster(spec.name, spec).outputs.items():
    pulumi.export(name, value)

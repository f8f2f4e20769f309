"""The declaration of a cluster: one model for all clouds, written in a stack's YAML file or in Python.

Start with `model.py`, which refers to the other models. `load.py` reads files, and `messages.py` creates findings from validation errors.
`gpuinfra explain` describes each field.
"""

from gpuinfra.spec.capacity import Block, Capacity, Flex, OnDemand, Reserved, Spot
from gpuinfra.spec.files import NodeFile
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.load import LoadedStack, parse_spec, read_stack
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.policy import (
    Access,
    Audit,
    BudgetSpec,
    ExistingNetwork,
    Framework,
    Handover,
    Ingress,
    LayersUsed,
    NetworkSpec,
    NodeRoleSpec,
    Software,
    User,
)
from gpuinfra.spec.pool import Candidate, DiskSpec, Pool
from gpuinfra.spec.steps import NodeStep
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount, Storage
from gpuinfra.spec.target import Aws, Azure, Gcp

__all__ = [
    "Access",
    "Audit",
    "Aws",
    "Azure",
    "Block",
    "BudgetSpec",
    "Candidate",
    "Capacity",
    "ClusterSpec",
    "CustomImage",
    "DiskSpec",
    "ExistingFileSystem",
    "ExistingNetwork",
    "Flex",
    "Framework",
    "Gcp",
    "Handover",
    "Home",
    "Ingress",
    "LayersUsed",
    "LoadedStack",
    "Lustre",
    "NetworkSpec",
    "NodeFile",
    "NodeRoleSpec",
    "NodeStep",
    "ObjectMount",
    "OnDemand",
    "Pool",
    "Reserved",
    "Software",
    "Spot",
    "Storage",
    "User",
    "parse_spec",
    "read_stack",
]

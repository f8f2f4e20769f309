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
    Budget,
    ExistingNetwork,
    Framework,
    Handover,
    Ingress,
    Network,
    NodeRole,
    Software,
    Use,
    User,
)
from gpuinfra.spec.pool import Candidate, Disk, Pool
from gpuinfra.spec.steps import NodeStep
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount, Storage
from gpuinfra.spec.target import Aws, Azure, Gcp

__all__ = [
    "Access",
    "Audit",
    "Aws",
    "Azure",
    "Block",
    "Budget",
    "Candidate",
    "Capacity",
    "ClusterSpec",
    "CustomImage",
    "Disk",
    "ExistingFileSystem",
    "ExistingNetwork",
    "Flex",
    "Framework",
    "Gcp",
    "Handover",
    "Home",
    "Ingress",
    "LoadedStack",
    "Lustre",
    "Network",
    "NodeFile",
    "NodeRole",
    "NodeStep",
    "ObjectMount",
    "OnDemand",
    "Pool",
    "Reserved",
    "Software",
    "Spot",
    "Storage",
    "Use",
    "User",
    "parse_spec",
    "read_stack",
]

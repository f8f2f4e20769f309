"""Clones a declaration to a second region, and writes its stack file (docs/guides/clone.md)."""

from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import MODES, Alternative, CloneChange, ClonedFile, CloneRequest, CloneResult, Transfer

__all__ = ["MODES", "Alternative", "CloneChange", "CloneRequest", "CloneResult", "ClonedFile", "Transfer", "clone"]

"""Clones a declaration to a second region, and writes its stack file (docs/guides/clone.md)."""

from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import MODES, Alternative, Change, ClonedFile, Request, Result, Transfer

__all__ = ["MODES", "Alternative", "Change", "ClonedFile", "Request", "Result", "Transfer", "clone"]

"""Clones a declaration to a second region, and writes its stack file (docs/second-region.md)."""

from gpuinfra.clone.make import clone
from gpuinfra.clone.model import MODES, Alternative, Change, ClonedFile, Request, Result, Transfer

__all__ = ["MODES", "Alternative", "Change", "ClonedFile", "Request", "Result", "Transfer", "clone"]

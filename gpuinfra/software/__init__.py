"""The software lock: one version of each software package for a pool, with the reason.

`tables.py` lists compatible versions, and `lock.py` selects or checks versions. `gpuinfra/plan/environment.py` writes them for the bootstrap steps.
"""

from gpuinfra.software.lock import Choice, LockRequest, SoftwareLock, VersionConflict, flavour, lock

__all__ = ["Choice", "LockRequest", "SoftwareLock", "VersionConflict", "flavour", "lock"]

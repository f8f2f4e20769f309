"""The software lock: one version of each software package of a pool, with the reason.

`tables.py` lists compatible versions, `lock.py` chooses or checks versions, `environment.py` writes them for the bootstrap steps.
"""

from gpuinfra.software.environment import environment
from gpuinfra.software.lock import Choice, Conflict, Lock, LockRequest, flavour, lock

__all__ = ["Choice", "Conflict", "Lock", "LockRequest", "environment", "flavour", "lock"]

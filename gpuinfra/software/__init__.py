"""One version of each piece of software, with the reason for it.

`tables.py` holds what goes together, `lock.py` chooses or checks, `environment.py` writes it down for the steps.
"""

from gpuinfra.software.environment import environment
from gpuinfra.software.lock import Choice, Conflict, Lock, Wanted, flavour, lock

__all__ = ["Choice", "Conflict", "Lock", "Wanted", "environment", "flavour", "lock"]

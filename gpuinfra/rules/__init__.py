"""Rules check a declaration. Each rule is a small pure function named after the condition that it checks.

Every rule runs, so that one run reports all findings. Rules do not check quota, capacity, or images, which require an account.
This package contains the rules for all clouds. The rules of a cloud are in `gpuinfra/clouds/<cloud>/rules`.
"""

from gpuinfra.rules.run import check
from gpuinfra.rules.stack import check_stack, load_stack

__all__ = ["check", "check_stack", "load_stack"]

"""Rules: small pure functions that check a declaration, each named after what it checks.

Every rule runs, so that one run reports all findings. Quota, capacity and images need an account and are not checked here.
This package holds the rules that apply to every cloud; the rules of one cloud are in `gpuinfra/clouds/<cloud>/rules`.
"""

from gpuinfra.rules.run import check
from gpuinfra.rules.stack import check_stack, load_stack

__all__ = ["check", "check_stack", "load_stack"]

"""Runs the tests of a module against its mutants: `python -m tests.mutation.run MODULE ...` prints the survivors."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import sample, source_of
from tests.mutation.plugin import NOT_LOADED, VARIABLE

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
"""A mutant whose tests take longer never ends, and counts as found."""


@dataclass(frozen=True)
class Target:
    """A module, the tests that must find its mutants, and the number of mutants in the sample."""

    tests: tuple[str, ...]
    most: int = 12
    functions: tuple[str, ...] = ()
    """Functions whose mutants are in the sample; all functions if empty."""


_ADDRESSES = ("tests/plan/test_plan.py", "tests/plan/test_addresses.py")
"""The golden plans find most mutants in seconds; the generated plans search for a smaller example of each overlap."""

TARGETS: dict[str, Target] = {
    "gpuinfra.handover.judge": Target(
        (
            "tests/handover/test_judge.py",
            "tests/handover/test_fabric_test.py",
            "tests/handover/test_gather.py::test_evidence_that_changes_while_it_is_read_waits",
        )
    ),
    "gpuinfra.handover.examine": Target(("tests/handover/test_judge.py", "tests/handover/test_fabric_test.py")),
    "gpuinfra.node.judge": Target(
        ("tests/node/test_judge.py", "tests/node/test_never_pass.py", "tests/node/test_evidence.py")
    ),
    "gpuinfra.clouds.gcp.handover.identity": Target(("tests/clouds/gcp/test_handover_identity.py",)),
    "gpuinfra.clouds.azure.handover.attested": Target(("tests/clouds/azure/test_attested.py",)),
    "gpuinfra.handover.text": Target(("tests/handover/test_host_keys.py",), 8),
    "gpuinfra.remote.known": Target(("tests/remote/test_known.py",)),
    "gpuinfra.cost.price": Target(("tests/cost",)),
    "gpuinfra.cost.compare": Target(("tests/cost/test_cost.py",), 8),
    "gpuinfra.cost.file": Target(("tests/cost",), 8),
    "gpuinfra.cost.usage": Target(("tests/cost/test_usage.py", "tests/cost/test_cost.py"), 10),
    "gpuinfra.clouds.gcp.public_prices": Target(("tests/cost/test_public.py",), 10),
    "gpuinfra.plan.zones": Target(("tests/plan/test_zones.py",), 10),
    "gpuinfra.clouds.aws.handover.ports": Target(
        ("tests/clouds/aws/test_handover_ports.py", "rehearsal/tests/cloud/test_recorded_answers.py"), 12
    ),
    "gpuinfra.clouds.aws.profile": Target(_ADDRESSES, 6, ("network", "_subnets")),
    "gpuinfra.clouds.azure.profile": Target(_ADDRESSES, 5, ("network", "small_ranges", "file_system_limit")),
    "gpuinfra.clouds.gcp.profile": Target(_ADDRESSES, 6, ("network", "own_networks", "_service_range", "_cidrs")),
}


def outcome(module: str, name: str | None) -> int:
    """The exit code of the module's tests against a mutant; None is the module itself. 1 if they find it, 0 if they do not."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.plugin",
        "-m",
        "not long",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", VARIABLE))}
    if name is not None:
        environment[VARIABLE] = f"{module}|{name}"
    try:
        # With a folder of its own, pytest does not remove the folders of earlier runs, which can take longer than the limit.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*words, "--basetemp", folder, *TARGETS[module].tests],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return 1
    assert done.returncode != NOT_LOADED, f"no test of {module} imports it"
    return done.returncode


def survivors(module: str) -> list[str]:
    """The mutants of the sample that the module's tests do not find."""
    return [name for name in sampled(module) if outcome(module, name) == 0]


def sampled(module: str) -> list[str]:
    """The names of the mutants in the sample of a module."""
    target = TARGETS[module]
    return sample(source_of(module).read_text(encoding="utf-8"), target.most, target.functions)


if __name__ == "__main__":
    for one in sys.argv[1:] or TARGETS:
        assert outcome(one, None) == 0, f"the tests of {one} fail without a mutant"
        for survivor in survivors(one):
            print(f"{one}|{survivor}", flush=True)

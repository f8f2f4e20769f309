"""Runs the tests of a module against its mutants: `python -m tests.mutation.run MODULE ...` prints the survivors."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation import draw, plugin, shell
from tests.mutation.mutants import mutants_of_all_lines, sample, source_of
from tests.mutation.plugin import NOT_LOADED

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "boto3", "cryptography.x509", "google.auth.transport.requests", "grpc", "paramiko", "pulumi", "pulumi.runtime.mocks",
    "pulumi_aws", "pulumi_azure_native", "pulumi_gcp", "pydantic", "requests", "ruamel.yaml", "xml.etree.ElementTree",
)  # fmt: skip
OPTIONS = (
    "-q", "-x", "-rfE", "-p", "no:cacheprovider", "-m", "not long", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
BROKEN = 8
"""Exit code if the tests of a mutant cannot be started."""
LIMIT_S = 600
"""A mutant whose tests take longer never ends, and counts as found."""


@dataclass(frozen=True)
class Target:
    """A module, the tests that must find its mutants, and the number of mutants in the sample."""

    tests: tuple[str, ...]
    most: int = 6
    functions: tuple[str, ...] = ()
    """Functions whose mutants are in the sample; all functions if empty."""


_ADDRESSES = ("tests/plan/test_plan.py", "tests/plan/test_addresses.py")
"""The golden plans find most mutants in seconds; the generated plans search for a smaller example of each overlap."""

TARGETS: dict[str, Target] = {
    "gpuinfra.handover.judge": Target(("tests/handover/test_judge.py", "tests/handover/test_fabric_test.py")),
    "gpuinfra.handover.examine": Target(("tests/handover/test_judge.py", "tests/handover/test_fabric_test.py")),
    "gpuinfra.node.judge": Target(
        ("tests/node/test_judge.py", "tests/node/test_never_pass.py", "tests/node/test_evidence.py")
    ),
    "gpuinfra.clouds.gcp.handover.identity": Target(("tests/clouds/gcp/handover/test_identity.py",)),
    "gpuinfra.clouds.azure.handover.attested": Target(("tests/clouds/azure/handover/test_attested.py",)),
    "gpuinfra.handover.text": Target(("tests/handover/test_host_keys.py",)),
    "gpuinfra.remote.known": Target(("tests/remote/test_known.py",)),
    "gpuinfra.cost.price": Target(("tests/cost",)),
    "gpuinfra.cost.compare": Target(("tests/cost/test_cost.py",)),
    "gpuinfra.cost.file": Target(("tests/cost",)),
    "gpuinfra.cost.usage": Target(("tests/cost/test_usage.py", "tests/cost/test_cost.py")),
    "gpuinfra.clouds.gcp.public_prices": Target(("tests/cost/test_public.py",)),
    "gpuinfra.plan.zones": Target(("tests/plan/test_zones.py",)),
    "gpuinfra.clouds.aws.handover.ports": Target(
        ("tests/clouds/aws/handover/test_ports.py", "rehearsal/tests/cloud/test_recorded_answers.py")
    ),
    "gpuinfra.clouds.aws.profile": Target(_ADDRESSES, 6, ("network", "_subnets")),
    "gpuinfra.clouds.azure.profile": Target(_ADDRESSES, 5, ("network", "small_ranges", "file_system_limit")),
    "gpuinfra.clouds.gcp.profile": Target(_ADDRESSES, 6, ("network", "own_networks", "_service_range", "_cidrs")),
}


def tests_of(module: str) -> tuple[str, ...]:
    """The tests that must find the mutants of a module or a script."""
    own = TARGETS[module].tests if module in TARGETS else ()
    return tuple(dict.fromkeys([*own, *draw.tests_of(module)]))


@dataclass(frozen=True)
class Verdict:
    """How the tests of a module ended."""

    code: int
    """Exit code of pytest. 1 if a test failed, 0 if all passed."""
    test: str = ""
    """The first test that failed."""


def verdict(module: str, name: str | None) -> Verdict:
    """Run the module's tests against a mutant; None is the module itself.

    The tests run in a copy of this process, which has imported the packages that tests use, but no module of this project.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        process = os.fork()
        if not process:
            os.setsid()
            with output.open("wb", buffering=0) as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
            os._exit(_run(module, name, folder))
        until = time.monotonic() + LIMIT_S
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            if time.monotonic() > until:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return Verdict(1, f"a time limit of {LIMIT_S} s")
            time.sleep(0.05)
        code = os.waitstatus_to_exitcode(ended[1])
        failed = re.findall(
            r"^(?:FAILED|ERROR) (\S+)", output.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        )
        assert code != NOT_LOADED, f"no test of {module} imports it"
        assert code in (0, 1, 2, 4), f"{module}|{name}: {output.read_text(encoding='utf-8', errors='replace')[-2000:]}"
        return Verdict(code, failed[0] if failed else "")


def _run(module: str, name: str | None, folder: str) -> int:
    """In the copy of the process: run the tests, and return the exit code."""
    code = BROKEN
    try:
        if name is not None:
            plugin.install(module, name)
        for number, tests in enumerate(stages(module, name) if name else [tests_of(module)]):
            # With a folder of its own, pytest does not remove the folders of earlier runs, which can take longer than the limit.
            own = ["--basetemp", f"{folder}/tests-{number}"]
            code = int(pytest.main([*OPTIONS, *own, *tests], plugins=[plugin]))
            if code not in (0, NOT_LOADED):
                break
        return code
    except BaseException:
        traceback.print_exc()
        return BROKEN
    finally:
        sys.stdout.flush()


def stages(module: str, name: str) -> list[tuple[str, ...]]:
    """The tests of a module: the one that found the mutant according to the record, the files that are named after the module, then all."""
    tests, stem = tests_of(module), re.split(r"[./]", module.removesuffix(".py").removesuffix(".sh"))[-1]
    files = [
        path
        for test in tests
        for path in ([test] if "::" in test or test.endswith(".py") else sorted(map(str, Path(test).glob("test_*.py"))))
    ]
    first = tuple(
        path
        for path in files
        if re.search(rf"test_([a-z]+_)?{re.escape(stem.removeprefix('lib-').replace('-', '_'))}s?\.py", path)
    )
    recorded = draw.recorded().get((module, name), {}).get("found_by", "").partition("[")[0]
    path, _, function = recorded.partition("::")
    exists = (
        bool(function) and (ROOT / path).exists() and f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")
    )
    return [*([(recorded,)] if exists else []), *([first] if first else []), tests]


def outcome(module: str, name: str | None) -> int:
    """The exit code of the module's tests against a mutant; None is the module itself. 1 if they find it, 0 if they do not."""
    return verdict(module, name).code


def prepare() -> None:
    """Import the packages that many tests use."""
    os.chdir(ROOT)
    for package in PACKAGES:
        importlib.import_module(package)


def survivors(module: str) -> list[str]:
    """The chosen mutants that the module's tests do not find."""
    return [name for name in chosen(module) if outcome(module, name) == 0]


def sampled(module: str) -> list[str]:
    """The names of the mutants in the sample of a target."""
    target = TARGETS[module]
    return sample(source_of(module).read_text(encoding="utf-8"), target.most, target.functions)


def chosen(module: str) -> list[str]:
    """The names of the mutants that `make test-long` tests: the sample of a target, and the mutants in the record of the draw that still exist."""
    own = sampled(module) if module in TARGETS else []
    text = source_of(module).read_text(encoding="utf-8") if source_of(module).exists() else ""
    there = set(shell.mutants(text) if module.endswith(".sh") else mutants_of_all_lines(text))
    return list(
        dict.fromkeys([*own, *(name for recorded, name in draw.recorded() if recorded == module and name in there)])
    )


def every() -> list[str]:
    """The modules and scripts with chosen mutants."""
    return list(dict.fromkeys([*TARGETS, *(module for module, _ in draw.recorded())]))


if __name__ == "__main__":
    prepare()
    for one in sys.argv[1:] or every():
        assert outcome(one, None) == 0, f"the tests of {one} fail without a mutant"
        for survivor in survivors(one):
            print(f"{one}|{survivor}", flush=True)

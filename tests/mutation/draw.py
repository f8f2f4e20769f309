"""Draws mutants from all lines of the code that decides about trust: `python -m tests.mutation.draw SEED` writes the record of the draw.

The hash of the seed and the name chooses them. So a change of the code keeps the drawn mutants of other code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from tests.mutation import shell
from tests.mutation.mutants import mutants_of_all_lines, source_of

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("drawn.json")
SEED, COUNT = "2026-11-28", 60

_HANDOVER = ("tests/handover", "tests/clouds/test_redirects.py")
_REMOTE = (
    *(
        f"tests/remote/test_{name}.py"
        for name in ("known", "openssh_config", "hosts", "openssh", "fleet", "run", "tunnels")
    ),
    "tests/clouds/test_connections.py",
)
_FAILOVER = (
    "tests/region/failover",
    "tests/clouds/{cloud}/region",
    "tests/cli/test_failover.py",
    "tests/cli/test_failback.py",
)
_ROLES = (
    *(f"tests/clouds/{{cloud}}/test_{name}.py" for name in ("node_role", "roles", "policies", "mounts", "docs")),
    *(
        "tests/clouds/test_fabric_test.py",
        "tests/clouds/test_waiting.py",
        "tests/permissions",
        "tests/clouds/test_contract.py",
    ),
)
_NODE = (
    *(
        f"tests/node/test_{name}.py"
        for name in ("judge", "never_pass", "evidence", "cloud", "aws", "azure", "gcp", "hostile", "notices")
    ),
    "tests/clouds/test_redirects.py",
    "rehearsal/tests/cloud/test_repair_requests.py",
)
_SHELL = tuple(
    f"tests/bootstrap/test_{name}.py"
    for name in (
        "lib",
        "lock",
        "home_mounts",
        "saved_homes",
        "planted_links",
        "boot_mounts",
        "runner",
        "files_step",
        "own_step",
        "dead_bucket",
        "kill",
    )
)

TESTS: dict[str, tuple[str, ...]] = {
    "gpuinfra/handover/*.py": _HANDOVER,
    "gpuinfra/clouds/*/handover/*.py": ("tests/clouds/{cloud}/handover", "rehearsal/tests/cloud/test_{cloud}*.py", *_HANDOVER),
    **{f"gpuinfra/remote/{name}.py": _REMOTE for name in ("connect", "connection", "known", "keys", "openssh", "hosts", "proxy", "problem", "tunnels")},
    "gpuinfra/region/failover/*.py": _FAILOVER,
    "gpuinfra/region/readiness.py": ("tests/region", "tests/clouds/region", "tests/clouds/*/region/test_readiness.py"),
    "gpuinfra/clouds/region/failover.py": ("tests/region/failover", "tests/clouds/*/region"),
    "gpuinfra/clouds/*/region/failover.py": _FAILOVER,
    "gpuinfra/search/*.py": ("tests/search", "tests/cli/test_up.py"),
    "gpuinfra/clouds/aws/components/policies.py": _ROLES,
    "gpuinfra/clouds/*/components/roles.py": _ROLES,
    "gpuinfra/clouds/*/permissions.py": _ROLES,
    "gpuinfra/clouds/permissions.py": ("tests/permissions",),
    "gpuinfra/engine/release.py": ("tests/engine/test_release.py",),
    "gpuinfra/clouds/azure/rest.py": (
        "tests/clouds/azure/test_azure_rest.py", "tests/clouds/test_redirects.py", "tests/handover/test_trust.py", "rehearsal/tests/cloud/test_azure_http.py",
    ),
    "gpuinfra/clouds/gcp/credentials.py": ("tests/clouds/gcp/test_credentials.py",),
    **{f"gpuinfra/node/{name}.py": _NODE for name in ("evidence", "judge", "upload", "cloud", "aws", "azure", "gcp")},
    "bootstrap/boot/*.py": ("tests/bootstrap/test_fetch*.py", "tests/clouds/test_redirects.py"),
    "bootstrap/boot/user-data.sh": ("tests/bootstrap/test_user_data.py",),
    **{f"bootstrap/{name}.sh": _SHELL for name in ("lib", "lib-buckets", "lib-downloads", "lib-mounts", "lib-packages")},
    "bootstrap/lib-images.sh": ("tests/bootstrap/test_images.py", "rehearsal/tests/nodes/test_nccl_plugin.py",),
    "bootstrap/lib-lnet.sh": ("tests/bootstrap/test_lnet.py", "rehearsal/tests/nodes/test_lnet.py",),
    "bootstrap/lib-nccl.sh": ("rehearsal/tests/nodes/test_nccl_environment.py",),
}  # fmt: skip
"""Paths of modules and scripts, and the tests that must find their mutants. """


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Name of each module, or path of each script -> its tests."""
    found: dict[str, tuple[str, ...]] = {}
    for pattern, tests in TESTS.items():
        for path in sorted(ROOT.glob(pattern)):
            where = str(path.relative_to(ROOT))
            cloud = next((name for name in ("aws", "azure", "gcp") if f"/{name}/" in where), "")
            name = where.removesuffix(".py").replace("/", ".") if where.startswith("gpuinfra/") else where
            if path.name != "__init__.py":
                found[name] = tuple(
                    str(test.relative_to(ROOT)) for one in tests for test in sorted(ROOT.glob(one.format(cloud=cloud)))
                )
    return found


def tests_of(module: str) -> tuple[str, ...]:
    """The tests of a module or a script."""
    return modules().get(module, ())


def population() -> Iterator[tuple[str, str]]:
    """Each mutant: its module or script, and its name."""
    for module in modules():
        text = source_of(module).read_text(encoding="utf-8")
        names = shell.mutants(text) if module.endswith(".sh") else mutants_of_all_lines(text)
        yield from ((module, name) for name in names)


@cache
def drawn(seed: str = SEED, count: int = COUNT) -> tuple[tuple[str, str], ...]:
    """The mutants that a seed draws from all mutants."""
    order = sorted(population(), key=lambda one: hashlib.sha256("|".join((seed, *one)).encode()).hexdigest())
    return tuple(
        islice(
            (
                one
                for one in order
                if not one[0].endswith(".sh") or shell.is_valid(source_of(one[0]).read_text(encoding="utf-8"), one[1])
            ),
            count,
        )
    )


def recorded() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of the record, by module and mutant: `found_by` is the first test that finds the mutant, `reason` why none has to."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["mutants"]
    return {(one["module"], one["mutant"]): one for one in rows}


def main(seed: str) -> str:
    """Run the tests of each drawn mutant without a recorded reason, and write the record. Returns the mutants that survive without a reason, as the error of
    the program."""
    from tests.mutation.run import prepare, verdict

    prepare()
    rows, before, left = list[dict[str, str]](), recorded(), list[str]()
    for module, name in drawn(seed):
        row, reason = {"module": module, "mutant": name}, before.get((module, name), {}).get("reason", "")
        if reason:
            # `make test-long` tests that it survives all tests of its module, which takes longer than the other mutants together.
            rows.append({**row, "reason": reason})
            continue
        done = verdict(module, name)
        if not done.code:
            left.append(f"{module}|{name}")
        rows.append({**row, "found_by": done.test})
        print(json.dumps(rows[-1]), flush=True)
    record = {"seed": seed, "population": sum(1 for _ in population()), "mutants": rows}
    RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return "".join(f"survives without a reason: {one}\n" for one in left)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or [SEED])) or None)

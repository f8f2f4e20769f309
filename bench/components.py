"""The engine's time for our component program against a flat program that registers the same resources, taking turns in one run.

    python bench/components.py [STACK] [--pairs 7]

Both programs go up on an empty stand-in cloud under Pulumi's real engine, and nobody waits for nodes.
The flat program is what a person would have written out: the resources of the component program's own state, each under its class of the
provider's SDK, with the same references between them and no component around them. It is given what ours works out while it runs: the
declaration read, checked and planned, policies and user data written, bundles packed.
Figures depend on the machine; the ratio is the median over pairs of runs that follow each other. It judges nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gpuinfra.day import today  # noqa: E402
from gpuinfra.engine import find_engine  # noqa: E402
from gpuinfra.rehearsal import private  # noqa: E402
from gpuinfra.rehearsal.engine import Pulumi  # noqa: E402
from gpuinfra.rehearsal.events import Progress  # noqa: E402
from gpuinfra.rehearsal.folder import Folder, Program, find_program, write_project  # noqa: E402
from gpuinfra.shipped import shipped  # noqa: E402
from gpuinfra.spec.load import load_stack  # noqa: E402

FLAT = '''"""Made by bench/components.py: the same resources, written out."""
import json, pathlib, re
import pulumi
import {sdk} as sdk

MADE = {{}}

def snake(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\\1", name).lower()

def value(item):
    if isinstance(item, dict):
        if "$of" in item:
            return getattr(MADE[item["$of"]], item["$get"])
        if "$secret" in item:
            return pulumi.Output.secret(value(item["$secret"]))
        if "$file" in item:
            return pulumi.FileAsset(item["$file"])
        return {{key: value(one) for key, one in item.items()}}
    if isinstance(item, list):
        return [value(one) for one in item]
    return item

for row in json.loads(pathlib.Path(__file__).with_name("resources.json").read_text()):
    opts = pulumi.ResourceOptions(depends_on=[MADE[one] for one in row["after"]], retain_on_delete=row["kept"])
    props = value(row["inputs"])
    if row["type"].startswith("gpuinfra:"):
        from gpuinfra.handover import component
        from gpuinfra.handover.wire import TYPE
        MADE[row["urn"]] = pulumi.CustomResource(TYPE, row["name"], props, opts)
    else:
        package, module, kind = row["type"].split(":")
        cls = getattr(getattr(sdk, module.split("/")[0]), kind)
        MADE[row["urn"]] = cls(row["name"], **{{snake(key): one for key, one in props.items()}}, opts=opts)
'''

SIGNATURE = "4dabf18193072939515e22adb298388d"
ASSET, SECRET = "c44067f5952c0a294b673a41bacd8c17", "1b47061264138c4ac30d75fd1eb44270"
"""How Pulumi marks files and secrets in a state."""

MODES = {
    "state written at the end": {"PULUMI_EXPERIMENTAL": "1", "PULUMI_SKIP_CHECKPOINTS": "1"},
    "state written whole at every step, as into a folder or a bucket": {},
}
"""The second one costs by the square of what is in the state, components and their stack traces too, whatever they do."""

SDKS = {"aws": "pulumi_aws", "azure": "pulumi_azure_native", "gcp": "pulumi_gcp"}


@dataclass(frozen=True)
class Times:
    """Seconds of one `pulumi up`."""

    wall: float
    """From start to end, with the start of Python and the import of the SDK, which is most of it."""
    registering: float
    """From the first resource that the engine heard of to the end."""
    engine: float
    """Processor time of the engine's own process: what components cost it, whatever else the machine does."""


class Clock:
    """Looks at the engine while it works."""

    def __init__(self, folder: Folder) -> None:
        self._record = folder.processes
        self._begun = self._first = time.monotonic()
        self._engine = 0.0

    def watch(self, progress: Progress, kind: str | None) -> None:
        """Called for each event and a few times a second."""
        if progress.begun and self._first == self._begun:
            self._first = time.monotonic()
        with contextlib.suppress(OSError, ValueError, KeyError):
            rows = json.loads(self._record.read_text())["processes"]
            (pid,) = [row["pid"] for row in rows if row["name"] == "pulumi"]
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            self._engine = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def times(self) -> Times:
        """When it has ended."""
        now = time.monotonic()
        return Times(now - self._begun, now - self._first, self._engine)


class Bench:
    """One stack, two programs."""

    def __init__(self, stack: str, place: Path) -> None:
        self.stack, self.place = stack, place
        self.file = shipped("stacks") / f"Pulumi.{stack}.yaml"
        self.loaded = load_stack(self.file, today())
        self.engine = find_engine(print)
        self.ours = find_program(self.file)
        self.settings: dict[str, str] = {}
        self._runs = 0

    def up(self, program: Program) -> tuple[Times, list[dict[str, Any]]]:
        """Times of one `pulumi up` on an empty account, and the resources in its state."""
        self._runs += 1
        folder = Folder(root=self.place / str(self._runs), stack=self.stack)
        folder.make()
        write_project(folder, program, self.file)
        base = private.environment(folder) | {"GPUINFRA_WAIT": "none"} | self.settings
        argv = [sys.executable, "-m", "gpuinfra.rehearsal.cloud", "--folder", str(folder.root), "--no-nodes"]
        cloud = subprocess.Popen(argv, env=base, cwd=folder.root, stdout=subprocess.PIPE, text=True)
        try:
            assert cloud.stdout is not None
            ready = json.loads(cloud.stdout.readline())
            env = private.with_cloud(
                self.engine.environ(base), ready, self.loaded.spec.cloud, self.loaded.spec.where.region
            )
            pulumi = Pulumi(path=self.engine.path, version=self.engine.version, folder=folder, env=env)
            pulumi.ensure_stack()
            clock = Clock(folder)
            done = pulumi.operate("up", "--yes", "--skip-preview", watch=clock.watch)
            times = clock.times()
            if not done.ok:
                raise SystemExit(done.output[-4000:])
            shown = json.loads(pulumi.quick("stack", "export", "--show-secrets", "--stack", self.stack))
            held = [one for one in shown["deployment"]["resources"] if not one["type"].startswith("pulumi:")]
            return times, held
        finally:
            cloud.terminate()
            cloud.wait(20)
            if self._runs > 1:
                shutil.rmtree(folder.root)

    def flat(self, state: list[dict[str, Any]]) -> Program:
        """The same resources without components."""
        main = self.place / "flat"
        main.mkdir()
        rows = flat_rows(state)
        (main / "resources.json").write_text(json.dumps(rows))
        (main / "__main__.py").write_text(FLAT.format(sdk=SDKS[self.loaded.spec.cloud]))
        return Program(
            project=self.ours.project, main=main, virtualenv=self.ours.virtualenv, plugin=self.ours.plugin, config={}
        )


def flat_rows(state: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The custom resources of a state in the order in which they were made, with references in place of ids that others gave."""
    rows, given = [], {}
    for one in state:
        if not one.get("custom"):
            continue
        hidden = ("__defaults",)
        inputs = {key: item for key, item in one["inputs"].items() if key not in hidden}
        for named in one["inputs"].get("__defaults") or []:
            inputs.pop(named, None)  # what the provider named by itself, it names again
        after = [urn for urn in one.get("dependencies") or [] if urn in given]
        values = {value: (urn, get) for urn in given for value, get in given[urn].items()}
        rows.append(
            {
                "urn": one["urn"], "type": one["type"], "name": one["urn"].rsplit("::", 1)[-1],
                "inputs": _linked(inputs, values), "after": after, "kept": bool(one.get("retainOnDelete")),
            }
        )  # fmt: skip
        outputs = one.get("outputs") or {}
        given[one["urn"]] = {one["id"]: "id"} | {
            outputs[key]: key for key in ("arn",) if isinstance(outputs.get(key), str) and outputs[key] != one["id"]
        }
    return rows


def _linked(item: Any, values: dict[str, tuple[str, str]]) -> Any:
    if isinstance(item, dict):
        if item.get(SIGNATURE) == ASSET:
            return {"$file": item["path"]}
        if item.get(SIGNATURE) == SECRET:
            return {"$secret": _linked(json.loads(item["plaintext"]), values)}
        return {key: _linked(one, values) for key, one in item.items() if key != "__defaults"}
    if isinstance(item, list):
        return [_linked(one, values) for one in item]
    if isinstance(item, str) and item in values:
        urn, get = values[item]
        return {"$of": urn, "$get": get}
    return item


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stack", nargs="?", default="aws-p4d")
    parser.add_argument("--pairs", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(chosen.stack, Path(folder))
        _, state = bench.up(bench.ours)  # also warms what both load
        flat = bench.flat(state)
        _, other = bench.up(flat)
        kinds = [sorted(one["type"] for one in held if one.get("custom")) for held in (state, other)]
        assert kinds[0] == kinds[1], "the flat program makes other resources"
        components = sum(1 for one in state if not one.get("custom"))
        print(f"{chosen.stack}: {len(kinds[0])} resources, {components} components around them")
        for mode, settings in MODES.items():
            bench.settings = settings
            compare(bench, flat, chosen.pairs, mode)


def compare(bench: Bench, flat: Program, count: int, mode: str) -> None:
    """Pairs of runs in one mode, and what they say."""
    pairs: list[tuple[Times, Times]] = []
    for pair in range(count):
        turns = (bench.ours, flat) if pair % 2 == 0 else (flat, bench.ours)
        told = {id(program): bench.up(program)[0] for program in turns}
        pairs.append((told[id(bench.ours)], told[id(flat)]))
        print(f"pair {pair + 1}: components {shown(pairs[-1][0])}; flat {shown(pairs[-1][1])}", flush=True)
    print(f"{mode}, load {os.getloadavg()[0]:.1f}")
    for what in ("engine", "registering", "wall"):
        ours, others = ([getattr(one[side], what) for one in pairs] for side in (0, 1))
        ratio = statistics.median(a / b for a, b in zip(ours, others, strict=True))
        least = min(ours) / min(others)
        print(f"  {what}: components {statistics.median(ours):.2f} s, flat {statistics.median(others):.2f} s, ratio {ratio:.3f}, of the fastest {least:.3f}")  # fmt: skip


def shown(times: Times) -> str:
    """One line."""
    return f"engine {times.engine:.2f} s, registering {times.registering:.2f} s, wall {times.wall:.2f} s"


if __name__ == "__main__":
    main()

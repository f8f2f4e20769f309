"""The engine's time for our component program against programs without components that register the same resources, taking turns in one run.

    python bench/components.py [STACK] [--rounds 25]

All go up on an empty stand-in cloud under Pulumi's real engine, and nobody waits for nodes.

- `loose`: the same program, whose components register nothing: the same declaration read, checked and planned, the same bundle packed, the same
  resources by the same calls, and no node above them. What the ratio shows is what components cost.
- `written`: what a person would have written out: the resources of the component program's own state, each under its class of the provider's SDK,
  with the same references between them. It is given what ours works out while it runs: the plan, policies, user data, bundles.
  Like any program, it sends the debug messages and stack traces of Pulumi's SDK, which ours and `loose` leave out (docs/decisions/quiet.md).

Figures depend on the machine; a ratio is the median over rounds in which each program ran once. It judges nothing.
"""

from __future__ import annotations

import argparse
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
from gpuinfra.rehearsal.folder import Folder, Program, find_program, write_project  # noqa: E402
from gpuinfra.shipped import shipped  # noqa: E402
from gpuinfra.spec.load import load_stack  # noqa: E402

LOOSE = '''"""Made by bench/components.py: the stack's own program, whose components register nothing."""
import functools
import runpy
import sys
import pulumi

class Loose:
    def __init__(self, type_, name, props=None, opts=None, remote=False):
        pass

    def register_outputs(self, outputs):
        pass

def without_loose_parents(cls):
    original = cls.__init__

    @functools.wraps(original)
    def init(self, *args, **options):
        if isinstance(options.get("parent"), Loose):
            del options["parent"]
        original(self, *args, **options)

    cls.__init__ = init

pulumi.ComponentResource = Loose
for one in (pulumi.ResourceOptions, pulumi.InvokeOptions, pulumi.InvokeOutputOptions):
    without_loose_parents(one)
warn = pulumi.log.warn
pulumi.log.warn = lambda message, resource=None: warn(message)
sys.path.insert(0, {main!r})
runpy.run_path({main!r}, run_name="__main__")
'''

WRITTEN = '''"""Made by bench/components.py: the same resources, written out."""
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
    engine: float
    """Processor time of the engine's own process, user and system: what components cost it, whatever else the machine does."""


class Bench:
    """One stack, and the programs that make it."""

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
            times = self._timed(pulumi)
            shown = json.loads(pulumi.quick("stack", "export", "--show-secrets", "--stack", self.stack))
            held = [one for one in shown["deployment"]["resources"] if not one["type"].startswith("pulumi:")]
            return times, held
        finally:
            cloud.terminate()
            cloud.wait(20)
            if self._runs > 1:
                shutil.rmtree(folder.root)

    def _timed(self, pulumi: Pulumi) -> Times:
        argv = [str(pulumi.path), "up", "--yes", "--skip-preview", "--non-interactive", "--stack", self.stack]
        log = pulumi.folder.root / "up.log"
        with log.open("w") as out:
            begun = time.monotonic()
            process = subprocess.Popen(argv, env=pulumi.env, cwd=pulumi.folder.project, stdout=out, stderr=out)
            # A process that has ended and was not waited for still tells its own times, without those of its children.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            wall = time.monotonic() - begun
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            if process.wait():
                raise SystemExit(log.read_text()[-4000:])
        return Times(wall=wall, engine=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def loose(self) -> Program:
        """The stack's program, with components that register nothing."""
        return self._program("loose", LOOSE.format(main=str(self.ours.main)))

    def written(self, state: list[dict[str, Any]]) -> Program:
        """The resources of a state, written out."""
        program = self._program("written", WRITTEN.format(sdk=SDKS[self.loaded.spec.cloud]))
        (program.main / "resources.json").write_text(json.dumps(flat_rows(state)))
        return program

    def _program(self, name: str, text: str) -> Program:
        main = self.place / name
        main.mkdir()
        (main / "__main__.py").write_text(text)
        return Program(
            project=self.ours.project,
            main=main,
            virtualenv=self.ours.virtualenv,
            plugin=self.ours.plugin,
            config=self.ours.config,
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack", nargs="?", default="aws-p4d")
    parser.add_argument(
        "--rounds", type=int, default=25, help="rounds in each mode, 2 at least (default: 25, ten minutes a mode)"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(chosen.stack, Path(folder))
        _, state = bench.up(bench.ours)  # also warms what all of them load
        others = {"loose": bench.loose(), "written": bench.written(state)}
        for name, program in others.items():
            _, held = bench.up(program)
            assert kinds(held) == kinds(state), f"{name} makes other resources"
            assert all(one.get("custom") for one in held), f"{name} has components"
        components = sum(1 for one in state if not one.get("custom"))
        print(f"{chosen.stack}: {len(kinds(state))} resources, {components} components around them")
        for mode, settings in MODES.items():
            bench.settings = settings
            compare(bench, others, max(2, chosen.rounds), mode)


def kinds(state: list[dict[str, Any]]) -> list[str]:
    """Types of what a cloud holds."""
    return sorted(one["type"] for one in state if one.get("custom"))


def compare(bench: Bench, others: dict[str, Program], count: int, mode: str) -> None:
    """Rounds in one mode, and what they say."""
    programs = {"components": bench.ours, **others}
    told: dict[str, list[Times]] = {name: [] for name in programs}
    for index in range(count):
        names = list(programs)
        for name in names if index % 2 == 0 else reversed(names):
            told[name].append(bench.up(programs[name])[0])
        line = "; ".join(f"{name} {told[name][-1].engine:.2f} s, {told[name][-1].wall:.2f} s" for name in programs)
        print(f"round {index + 1} (engine, wall): {line}", flush=True)
    print(f"{mode}, load {os.getloadavg()[0]:.1f}")
    for other in others:
        for what in ("engine", "wall"):
            ours, theirs = ([getattr(one, what) for one in told[name]] for name in ("components", other))
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            error = statistics.stdev(ratios) / len(ratios) ** 0.5
            means = statistics.mean(ours) / statistics.mean(theirs)
            print(f"  {what}: components {statistics.mean(ours):.2f} s, {other} {statistics.mean(theirs):.2f} s, ratio {statistics.median(ratios):.3f} (of the means {means:.3f}, standard error {error:.3f})")  # fmt: skip


if __name__ == "__main__":
    main()

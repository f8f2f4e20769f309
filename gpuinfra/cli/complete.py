"""Values that a shell completes: stacks, clouds, regions, machine types, fields, checks, nodes, and kinds of capacity and storage.

A shell waits for these functions on each Tab, so they read file names, the catalog records and the JSON schema, and import neither the
models of the declaration nor an engine. A function that fails completes nothing, because a message would appear in the command line.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from gpuinfra.catalog.records import MachineType

Values = Callable[[click.Context, str], Iterable[str]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completes(values: Values) -> Complete:
    """Return the callback for an option or an argument. Values that do not start with the typed text are dropped."""

    @functools.wraps(values)
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            candidates = list(dict.fromkeys(values(ctx, incomplete)))
        except Exception:
            return []
        return [CompletionItem(one) for one in candidates if one.startswith(incomplete)]

    return complete


def stack_values(_: click.Context, __: str) -> Iterator[str]:
    """Names of the stacks in the project and of the stacks that ship with gpuinfra."""
    from gpuinfra.base.stack_files import known_stacks

    yield from known_stacks()


def _stack_file(ctx: click.Context) -> Path | None:
    """Return the file of the stack in the command line, given by name or by path."""
    from gpuinfra.base.stack_files import known_stacks

    words = ctx.params.get("words") or ()
    # If the last word is an option without its value, click leaves the arguments in `args`.
    arguments = (one.name for one in ctx.command.params if isinstance(one, click.Argument))
    left = dict(zip(arguments, ctx.args, strict=False))
    stack = words[0] if words else ctx.params.get("stack") or left.get("stack")
    return known_stacks().get(str(stack), Path(str(stack)).expanduser()) if stack else None


def _values_in_stack(ctx: click.Context, field: str) -> list[str]:
    """Return the plain values of a field in the stack file, in order. The file is not parsed, because the YAML reader is slow to import."""
    file = _stack_file(ctx)
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return re.findall(rf"""^[^#\n]*?\b{field}:\s*["']?([\w-]+)""", text, re.MULTILINE)


def stack_or_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a stack, or the path of a file if the text is a path."""
    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    return completes(stack_values)(ctx, param, incomplete)


def cloud_values(_: click.Context, __: str) -> Iterator[str]:
    """Names of the clouds."""
    from gpuinfra.base.registry import CLOUDS

    yield from CLOUDS


def machine_values(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """Machine types of the cloud and the region in the command line, with the pool in front of an equals sign if there is one."""
    pool, equals, _ = incomplete.rpartition("=")
    region = ctx.params.get("region")
    for cloud in _clouds(ctx):
        for machine in _machines(cloud).values():
            if not region or not machine.zones or region in machine.zones:
                yield f"{pool}{equals}{machine.name}"


def region_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Regions in which the catalog lists a machine type of the cloud in the command line."""
    for cloud in _clouds(ctx):
        for machine in _machines(cloud).values():
            yield from machine.zones


def stack_region_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Regions of the stack in the command line: its own region and its second region."""
    yield from (one for one in _values_in_stack(ctx, "region") if one in set(region_values(ctx, "")))


def zone_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Zones of the region in the command line in which the catalog lists a machine type."""
    for cloud in _clouds(ctx):
        for machine in _machines(cloud).values():
            yield from machine.zones.get(str(ctx.params.get("region")), ())


def gpu_values(_: click.Context, __: str) -> Iterator[str]:
    """GPUs of the catalog."""
    from gpuinfra.catalog.gpus import GPUS

    yield from GPUS


def _clouds(ctx: click.Context) -> Iterator[str]:
    """Yield the cloud in the command line, or the cloud of the stack in the command line. If there is neither, yield all clouds."""
    from gpuinfra.base.registry import CLOUDS

    given = ctx.params.get("cloud") or next(iter(_values_in_stack(ctx, "cloud")), None)
    yield from [given] if given in CLOUDS else CLOUDS


def _machines(cloud: str) -> Mapping[str, MachineType]:
    from gpuinfra.catalog.clouds import machines_of

    return machines_of(cloud)


def priced_values(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """The words of `prices`: stacks, and machine types of all clouds."""
    yield from stack_values(ctx, incomplete)
    yield from machine_values(ctx, incomplete)


def explained_values(_: click.Context, __: str) -> Iterator[str]:
    """What `explain` explains: paths of fields without indices, such as `pools.capacity.count`, rules, checks, bootstrap steps, Xids and alerts."""
    from gpuinfra.base.shipped import shipped
    from gpuinfra.monitoring.alerts import ALERTS
    from gpuinfra.node.checks import ALL
    from gpuinfra.node.xids import XIDS

    yield from (path.replace("[0]", "") for path in _paths())
    yield from _rules()
    for check in ALL.values():
        yield from (check.id, check.name)
    for script in shipped("bootstrap").glob("[0-9]*.sh"):
        yield from (script.stem, script.stem.split("-", 1)[-1])
    yield from (f"xid-{number}" for number in XIDS)
    yield from (one.name for one in ALERTS)


_RULE = re.compile(r"^def ([a-z]\w+)\(\w+: (?:ClusterSpec|LoadedStack)[^)]*\) -> Iterator\[Finding\]:", re.MULTILINE)


def _rules() -> Iterator[str]:
    """Yield the names of rules from the text of their modules, because the modules import the models of the declaration."""
    from gpuinfra.base.findings import READING_RULES

    package = Path(__file__).resolve().parents[1]
    yield from READING_RULES
    for file in (*package.glob("rules/*.py"), *package.glob("clouds/*/rules/*.py")):
        yield from _RULE.findall(file.read_text(encoding="utf-8"))


def path_values(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """Paths for `--set`: `pools[0].capacity[0].count`. The value after an equals sign is not completed."""
    if "=" not in incomplete:
        yield from _paths()


def kind_values(path: str, *more: str) -> Values:
    """Return a function for the kinds of the entries of a list, such as `storage`."""

    def values(_: click.Context, __: str) -> Iterator[str]:
        yield from more
        for section in _sections(_schema(), path):
            yield section["properties"]["kind"]["const"]

    return values


def capacity_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Kinds of capacity of the machine type in the command line, or of all machine types of its cloud."""
    machine = ctx.params.get("machine")
    for cloud in _clouds(ctx):
        for record in _machines(cloud).values():
            if not machine or machine not in _machines(cloud) or record.name == machine:
                yield from (kind.value for kind in record.capacity)


@functools.cache
def _schema() -> dict[str, Any]:
    file = Path(__file__).resolve().parents[1] / "spec" / "schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def _sections(schema: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield the sections of a list of the declaration, or of the pools."""
    models = schema["$defs"]
    cluster = models["ClusterSpec"]["properties"]
    yield from _models(cluster[name] if name in cluster else models["Pool"]["properties"][name], models)


def _paths() -> Iterator[str]:
    models = _schema()["$defs"]
    yield from _inside(models["ClusterSpec"], models, "")


def _inside(section: dict[str, Any], models: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, field in section["properties"].items():
        inner = list(_models(field, models))
        path = f"{prefix}{name}{'[0]' if inner and _is_list(field) else ''}"
        yield f"{prefix}{name}"
        for model in inner:
            yield from _inside(model, models, f"{path}.")


def _is_list(field: dict[str, Any]) -> bool:
    return "items" in field or any("items" in one for one in field.get("anyOf", ()))


def _models(field: dict[str, Any], models: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sections that a field contains, directly or as entries of a list."""
    if "$ref" in field:
        yield models[field["$ref"].rpartition("/")[2]]
    for schema in (*field.get("anyOf", ()), *field.get("oneOf", ()), *([field["items"]] if "items" in field else ())):
        yield from _models(schema, models)


def node_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Labels of the nodes in the report of the stack's last rehearsal. The nodes of a deployed stack are in its state, which is not read.

    Rehearsals are in the folder of the option, or in the folder of the same name in the project.
    """
    from gpuinfra.base.stack_files import project_folder, stack_name

    file = _stack_file(ctx)
    folder, project = Path(ctx.params["folder"]), project_folder(Path.cwd())
    for place in (folder, *([project / folder] if project else [])):
        report = place / stack_name(file or Path()) / "report.json"
        if report.is_file():
            yield from (str(node["label"]) for node in json.loads(report.read_text(encoding="utf-8"))["nodes"])
            return


def fault_values(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """Faults of `--fault`: those of the nodes, of the last rehearsal or the first node of each pool, and those of the cloud.

    The resource types of `cloud:error` are missing, because only the plan contains them.
    """
    from gpuinfra.cli.rehearsals import installed

    if (rehearsal := installed()) is None:
        return
    pools = _pools(ctx)
    typed = incomplete.split(":")[1] if incomplete.startswith("node:") and incomplete.count(":") == 2 else ""
    labels = [typed] if typed else [*node_values(ctx, ""), *(f"{pool}-1" for pool in pools)]
    targets = [*pools, *_values_in_stack(ctx, "kind"), *_values_in_stack(ctx, "zone")]
    yield from rehearsal.faults(labels, targets)


def _pools(ctx: click.Context) -> list[str]:
    """Return the names of the pools in the stack file."""
    file = _stack_file(ctx)
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    section = re.search(r"^( *)pools:.*\n((?:\1[ -].*\n|\s*\n)*)", text + "\n", re.MULTILINE)
    return re.findall(r"""^ *- *\{?name:\s*["']?([\w-]+)""", section[2] if section else "", re.MULTILINE)


def ssh_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the words of `ssh`: a stack, then a node."""
    words = ctx.params.get("words") or ()
    if not words:
        return stack_or_file(ctx, param, incomplete)
    return completes(node_values)(ctx, param, incomplete) if len(words) == 1 else []


def cp_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the words of `cp`: a stack, then nodes with a colon, and files of this machine."""
    if not ctx.params.get("words"):
        return stack_or_file(ctx, param, incomplete)
    nodes = completes(lambda ctx, text: (f"{label}:" for label in node_values(ctx, text)))(ctx, param, incomplete)
    return nodes or [CompletionItem(incomplete, type="file")]


COMPLETED: dict[str, Complete] = {
    "stack": stack_or_file,
    "cloud": completes(cloud_values),
    "region": completes(region_values),
    "zone": completes(zone_values),
    "machine": completes(machine_values),
    "gpu": completes(gpu_values),
    "values": completes(path_values),
    "failover.region": completes(stack_region_values),
    "names.region": completes(stack_region_values),
    "to": completes(stack_region_values),
    "plan.against": stack_or_file,
    "prices.names": completes(priced_values),
    "rehearse.faults": completes(fault_values),
    "explain.name": completes(explained_values),
    "init.capacity": completes(capacity_values),
    "init.storage": completes(kind_values("storage", "none")),
    "ssh.words": ssh_word,
    "cp.words": cp_word,
    "replace.nodes": completes(node_values),
}
"""Functions that complete values, keyed by parameter, or by command and parameter. Click itself completes commands, option names, and fixed option values."""


def attach(command: click.Command) -> click.Command:
    """Return a command whose parameters complete the values in `COMPLETED`."""
    for parameter in command.params:
        completer = COMPLETED.get(f"{command.name}.{parameter.name}") or COMPLETED.get(str(parameter.name))
        if completer and not isinstance(parameter.type, click.Choice):
            parameter.shell_complete = functools.partial(_of, completer, parameter)  # type: ignore[method-assign]
    return command


def _of(complete: Complete, parameter: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return complete(ctx, parameter, incomplete)

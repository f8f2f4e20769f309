"""Values that a shell completes: stacks, clouds, regions, machine types, fields, nodes, and kinds of capacity and storage.

A shell waits for these functions on each Tab, so they read file names, the catalog records and the JSON schema, and import neither the
models of the declaration nor an engine. A function that fails completes nothing, because a message would appear in the command line.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Values = Callable[[click.Context, str], Iterable[str]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completes(values: Values) -> Complete:
    """Return the callback for an option or an argument. Values that do not start with the typed text are dropped."""

    @functools.wraps(values)
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(dict.fromkeys(values(ctx, incomplete)))
        except Exception:
            return []
        return [CompletionItem(one) for one in found if one.startswith(incomplete)]

    return complete


def stack_values(_: click.Context, __: str) -> Iterator[str]:
    """Names of the stacks in the project and of the stacks that ship with gpuinfra."""
    from gpuinfra.stack_files import known_stacks

    yield from known_stacks()


def stack_or_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a stack, or the path of a file if the text is a path."""
    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    return completes(stack_values)(ctx, param, incomplete)


def cloud_values(_: click.Context, __: str) -> Iterator[str]:
    """Names of the clouds."""
    from gpuinfra.registry import CLOUDS

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
    from gpuinfra.registry import CLOUDS

    given = ctx.params.get("cloud")
    yield from [given] if given in CLOUDS else CLOUDS


def _machines(cloud: str) -> Any:
    from gpuinfra.registry import module_of

    return module_of(cloud, "catalog").MACHINES


def field_values(_: click.Context, __: str) -> Iterator[str]:
    """Paths of fields without indices, such as `pools.capacity.count`."""
    yield from (path.replace("[0]", "") for path in _paths())


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
        for one in inner:
            yield from _inside(one, models, f"{path}.")


def _is_list(field: dict[str, Any]) -> bool:
    return "items" in field or any("items" in one for one in field.get("anyOf", ()))


def _models(field: dict[str, Any], models: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sections that a field contains, directly or as entries of a list."""
    if "$ref" in field:
        yield models[field["$ref"].rpartition("/")[2]]
    for one in (*field.get("anyOf", ()), *field.get("oneOf", ()), *([field["items"]] if "items" in field else ())):
        yield from _models(one, models)


def node_values(ctx: click.Context, _: str) -> Iterator[str]:
    """Labels of the nodes in the report of the stack's last rehearsal. The nodes of a deployed stack are in its state, which is not read."""
    words = ctx.params.get("words") or ()
    stack = words[0] if words else ctx.params.get("stack")
    report = json.loads(
        (Path(ctx.params["folder"]) / Path(str(stack)).name / "report.json").read_text(encoding="utf-8")
    )
    yield from (str(node["label"]) for node in report["nodes"])


def ssh_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the words of `ssh`: a stack, then a node."""
    words = ctx.params.get("words") or ()
    if not words:
        return stack_or_file(ctx, param, incomplete)
    return completes(node_values)(ctx, param, incomplete) if len(words) == 1 else []


COMPLETED: dict[str, Complete] = {
    "stack": stack_or_file,
    "cloud": completes(cloud_values),
    "region": completes(region_values),
    "zone": completes(zone_values),
    "machine": completes(machine_values),
    "gpu": completes(gpu_values),
    "values": completes(path_values),
    "explain.name": completes(field_values),
    "init.capacity": completes(kind_values("capacity")),
    "init.storage": completes(kind_values("storage", "none")),
    "ssh.words": ssh_word,
    "cp.words": stack_or_file,
    "replace.nodes": completes(node_values),
}
"""Functions that complete values, keyed by parameter, or by command and parameter. Click itself completes commands, option names, and fixed option values."""


def attach(command: click.Command) -> click.Command:
    """Return a command whose parameters complete the values in `COMPLETED`."""
    for parameter in command.params:
        found = COMPLETED.get(f"{command.name}.{parameter.name}") or COMPLETED.get(str(parameter.name))
        if found and not isinstance(parameter.type, click.Choice):
            parameter.shell_complete = functools.partial(_of, found, parameter)  # type: ignore[method-assign]
    return command


def _of(found: Complete, parameter: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return found(ctx, parameter, incomplete)

"""`gpuinfra adopt`: after a destroy, the file with which Pulumi takes back what was kept."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import click


class Kept(Protocol):
    """One resource that was kept, as each cloud's `adopt` answers it."""

    @property
    def thing(self) -> Any:
        """Its type, logical name and parents."""
        ...

    @property
    def id(self) -> str:
        """What the engine imports it by."""
        ...


@click.command(name="adopt")
@click.argument("stack")
@click.option(
    "--organization",
    default="organization",
    show_default=True,
    help="Organisation of the stack; the default is that of self-managed state.",
)
@click.option("--project", default="gpuinfra", show_default=True, help="Project of the stack.")
@click.option("--profile", default=None, help="AWS: named profile. Left out: the environment's credentials.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("adopt.json"),
    show_default=True,
    help="File to write.",
)
def command(stack: str, organization: str, project: str, profile: str | None, out: Path) -> None:
    """Write the import file for what an earlier destroy of STACK kept.

    A destroy keeps buckets, keys, audit logs, and file systems that hold the only copy of something.
    A new `pulumi up` of the same stack would make them again and fails, because their names are taken by themselves;
    this looks which of them are there and says how to take them back.
    """
    from gpuinfra import naming
    from gpuinfra.clouds import CLOUDS
    from gpuinfra.day import today
    from gpuinfra.errors import UsageError
    from gpuinfra.plan import make_plan
    from gpuinfra.spec import load_stack

    day = today()
    loaded = load_stack(stack, day)
    if importlib.util.find_spec(f"{CLOUDS[loaded.spec.cloud]}.adopt") is None:
        raise UsageError(f"{stack} is on {loaded.spec.cloud}, where adopt can look for nothing yet")
    cloud = importlib.import_module(f"{CLOUDS[loaded.spec.cloud]}.adopt")
    plan = make_plan(loaded.spec, day)
    token = naming.stack_token(organization, project, loaded.name, plan.name)
    found = list(cloud.look(plan, token, profile))
    if not found:
        click.echo(
            f"nothing that a destroy of {loaded.name} keeps is there; `pulumi up --stack {loaded.name}` makes it new"
        )
        return
    out.write_text(json.dumps(import_document(found, cloud.PACKAGE), indent=1) + "\n")
    click.echo(f"{len(found)} kept resources are there; {out} names them. Take them back, then go on as usual:")
    click.echo(
        f"  pulumi destroy --stack {loaded.name}   # only where an `up` has failed on them: it leaves half a stack behind"
    )
    click.echo(f"  pulumi import --stack {loaded.name} --file {out} --protect=false --generate-code=false --yes")
    click.echo(f"  pulumi up --stack {loaded.name}")


def import_document(found: Sequence[Kept], package: str) -> dict[str, Any]:
    """The file that `pulumi import --file` reads: the things, under the components that the program has them in."""
    from importlib.metadata import version

    rows: list[dict[str, Any]] = []
    known: set[tuple[str, str]] = set()
    for one in found:
        above = ""
        for type_, name in one.thing.parents:
            if (type_, name) not in known:
                known.add((type_, name))
                rows.append(_row(type_, name, above) | {"component": True})
            above = _tag(type_, name)
        rows.append(_row(one.thing.type, one.thing.name, above) | {"id": one.id, "version": version(package)})
    return {"nameTable": {}, "resources": rows}


def _row(type_: str, name: str, parent: str) -> dict[str, Any]:
    # `name` ties rows of the file together and has to be unique in it; `logicalName` is what the resource is called.
    row: dict[str, Any] = {"type": type_, "name": _tag(type_, name), "logicalName": name}
    return row | {"parent": parent} if parent else row


def _tag(type_: str, name: str) -> str:
    return f"{name}-{type_.rsplit(':', 1)[-1].lower()}"

"""`gpuinfra dashboards`: writes the Grafana dashboards of a stack, or stores them in a Grafana."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.alerts import served
from gpuinfra.cli.stacks import short_name

if TYPE_CHECKING:
    from gpuinfra.spec.load import LoadedStack

TOKEN = "GRAFANA_TOKEN"
OTHER = "use a different folder with --output"


@click.command("dashboards")
@click.argument("stack")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Folder for the files. Default: STACK-dashboards.",
)
@click.option(
    "--grafana", metavar="URL", help="Store the dashboards in the Grafana with this address instead of in files."
)
@click.option("--folder", metavar="UID", help="With --grafana: ID of the folder of Grafana. Default: General.")
def command(stack: str, output: Path | None, grafana: str | None, folder: str | None) -> int:
    """Write the Grafana dashboards of STACK as files, or store them in a Grafana.

    There is one dashboard each for the fleet, a node, the fabric and the storage, and with `recovery.checkpoints` one for the second region.
    Existing files and dashboards of the stack are replaced.

    --grafana uses the token in the environment variable GRAFANA_TOKEN. Without it, Amazon Managed Grafana and Azure Managed Grafana get a token
    that your own credentials create and that expires.
    """
    import json

    from gpuinfra.base.file_errors import cannot_write
    from gpuinfra.base.people_files import replace_files, replaceable
    from gpuinfra.monitoring.dashboards import documents

    if folder and not grafana:
        raise UsageError("--folder is a folder of Grafana; use it together with --grafana")
    if output and grafana:
        raise UsageError("--output writes files and --grafana stores the dashboards in Grafana; use one of them")
    loaded, pools = served(stack)
    built = documents(loaded.spec.name, recovery=any(pool.checkpoint_s for pool in pools))
    if grafana:
        return _store(loaded, grafana, folder, built)
    target = output or Path(f"{short_name(stack)}-dashboards")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise cannot_write(target, problem, OTHER) from None
    files = [(replaceable(target / f"{key}.json"), json.dumps(built[key], indent=1) + "\n") for key in built]
    replace_files(files, OTHER)
    for file, _ in files:
        click.echo(file.path)
    return 0


def _store(stack: LoadedStack, url: str, folder: str | None, built: dict[str, dict[str, object]]) -> int:
    from gpuinfra.cli.grafana import host_of, store
    from gpuinfra.clouds.cloud import cloud_of

    host = host_of(url)
    given = os.environ.get(TOKEN)
    lent = contextlib.nullcontext(given) if given else cloud_of(stack.spec.cloud).grafana_token(host, stack.settings)
    if lent is None:
        raise UsageError(f"{TOKEN} is not set; set it to a token of a service account of {host} with the role Editor")
    with lent as token:
        for document in built.values():
            click.echo(store(url, token, folder, document))
    return 0

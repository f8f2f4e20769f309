"""`gpuinfra verify`: judge evidence again, and say which node to drain, reset, reboot or replace."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from gpuinfra.errors import UsageError


@click.command("verify")
@click.argument("stack", required=False)
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder (or file) of evidence, as the evidence bucket lays it out.",
)
@click.option(
    "--expectation",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What a healthy node shows, instead of STACK's plan.",
)
@click.option(
    "--baseline", type=click.Path(path_type=Path), metavar="DIR", help="Earlier evidence: say what got worse since."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one self-contained page.")
def command(
    stack: str | None,
    evidence: Path | None,
    expectation: Path | None,
    baseline: Path | None,
    as_json: bool,
    junit: Path | None,
    html: Path | None,
) -> int:
    """Judge evidence of nodes again.

    What a healthy node shows comes from the plan of STACK (a stack's name or file) or from --expectation.
    Exit code 0 when every node is verified, 1 when one is not.
    """
    from gpuinfra.verification import write
    from gpuinfra.verification.judged import judge_all
    from gpuinfra.verification.read import read_folder

    if evidence is None:
        raise UsageError(
            "verify needs --evidence DIR; fetch it with: aws s3 sync s3://BUCKET/evidence/CLUSTER DIR "
            "(`pulumi stack output evidence_bucket` names the bucket)"
        )
    found = read_folder(evidence)
    earlier = read_folder(baseline) if baseline else None
    nodes = judge_all(found, _expected(stack, expectation), earlier)
    document = write.document(nodes, found.problems)
    if junit:
        junit.write_text(write.junit(nodes), encoding="utf-8")
    if html:
        from gpuinfra.report.verification import verification_page

        html.write_text(
            verification_page(document, f"Verification of {stack or evidence.resolve().name}"), encoding="utf-8"
        )
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        for line in write.text(nodes, found.problems):
            click.echo(line)
    return 0 if document["verified"] else 1


def _expected(stack: str | None, file: Path | None) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    if (stack is None) == (file is None):
        raise UsageError("say what a healthy node shows: give STACK or --expectation FILE, and not both")
    if file is not None:
        try:
            one = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--expectation {file} cannot be read as JSON: {error}") from None
        if not isinstance(one, dict) or not one.get("required"):
            raise UsageError(f"--expectation {file} lists no required checks; give the bundle's expectation.json")
        return lambda _: one
    from datetime import UTC, datetime

    from gpuinfra.plan import make_plan
    from gpuinfra.spec import load_stack

    assert stack is not None
    today = datetime.now(UTC).date()
    pools = {pool.name: pool.expectation for pool in make_plan(load_stack(stack, today).spec, today).pools}

    def of_pool(document: Mapping[str, Any]) -> Mapping[str, Any]:
        pool = document.get("pool")
        if pool not in pools:
            raise UsageError(
                f"evidence of {document.get('instance_id')} is of pool {pool!r}; {stack} has {', '.join(pools)}"
            )
        return pools[pool]

    return of_pool

"""The declared files of a pool, and the file that sets its declared environment variables."""

from __future__ import annotations

import hashlib
import shlex

from gpuinfra.plan.model import FilePlan
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool

VARIABLES = "/etc/profile.d/gpuinfra-variables.sh"
"""Login shells read the files in this folder in the order of their names, so this file follows the files of CUDA and NCCL.
Ubuntu's `/etc/profile`, base-files."""


def variables(spec: ClusterSpec, pool: Pool) -> dict[str, str]:
    """Return the declared environment variables of a pool, sorted by name."""
    return dict(sorted({**spec.software.environment, **pool.environment}.items()))


def of_pool(spec: ClusterSpec, pool: Pool) -> tuple[FilePlan, ...]:
    """Return the files of a pool, sorted by path."""
    files = [
        planned_file(
            one.path, one.text, one.file or "content", owner=one.owner, group=one.group or one.owner, mode=one.mode
        )
        for one in spec.software.files
        if not one.pools or pool.name in one.pools
    ]
    if declared := variables(spec, pool):
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in declared.items()]
        text = "# Written by gpuinfra: the environment variables in the declaration.\n" + "".join(lines)
        files.append(planned_file(VARIABLES, text, "environment"))
    return tuple(sorted(files, key=lambda one: one.path))


def planned_file(
    path: str, content: str, source: str, *, owner: str = "root", group: str = "root", mode: str = "0644"
) -> FilePlan:
    """Return a file with its checksum."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    return FilePlan(path=path, owner=owner, group=group, mode=mode, source=source, sha256=digest, content=content)

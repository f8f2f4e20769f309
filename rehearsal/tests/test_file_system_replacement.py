"""A change that would replace a file system is refused, under the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra_rehearsal.actions import errors_of, perform
from rehearsal.tests.test_retained_orders import STACK, WHERE, held, session_of


@pytest.mark.long
def test_a_smaller_file_system_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """The preview of a smaller size fails with the way out, and nothing in the cloud changes. A larger size is an update."""
    provider, where, _, rest = WHERE["aws"]
    path, root = tmp_path / "Pulumi.aws-lab.yaml", tmp_path / "r"

    def declare(size: int) -> None:
        storage = f"- {{kind: lustre, mount: /scratch, capacity_gib: {size}}}"
        path.write_text(STACK.format(provider=provider, where=where, storage=storage, rest=rest), encoding="utf-8")

    declare(4800)
    folder = root / "aws-lab"
    with session_of(path, root) as session:
        done = perform(session, "up")
        assert done.ok, errors_of(done)
    before = held(folder)
    for size, ok in ((2400, False), (7200, True)):
        declare(size)
        with session_of(path, root) as session:
            done = perform(session, "up")
            assert done.ok is ok, errors_of(done)
            assert held(folder) == before
            if not ok:
                assert "FSx can only increase the size" in done.output

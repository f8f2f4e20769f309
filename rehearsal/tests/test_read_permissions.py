"""Previews and refreshes under the permissions of `gpuinfra permissions --read`."""

from __future__ import annotations

import functools
import io

import pytest

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra_rehearsal.actions import errors_of, perform
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

from .conftest import Rehearse


@pytest.mark.long
@pytest.mark.parametrize("stack", ["aws-p4d", "azure-ndv4", "gcp-a3high"])
def test_an_identity_that_only_reads_can_preview_and_refresh_but_not_change(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """The permissions are sufficient for a preview and a refresh of a deployed stack, and the cloud denies a destroy."""
    up = rehearse("up", stack, "--without-nodes")
    assert up.code == 0, up.out + up.err
    cloud = type(cloud_of(stack.partition("-")[0]))
    monkeypatch.setattr(cloud, "permissions", functools.partialmethod(cloud.permissions, read_only=True))
    options = Options(stack=stack, folder=up.root.parent, least_privilege=True, without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        for action in ("preview", "refresh"):
            operation = perform(session, action)
            assert operation.ok, errors_of(operation)
        assert not perform(session, "destroy").ok
        assert session.cloud.ask("permissions")["refused"]
    monkeypatch.undo()
    assert rehearse("destroy", stack, "--without-nodes").code == 0

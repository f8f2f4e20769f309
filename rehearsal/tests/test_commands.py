"""The commands around `gpuinfra up` on a rehearsed stack of each cloud."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

from .conftest import command
from .test_search import CLOUDS, Run, stack_file

pytestmark = [pytest.mark.usefixtures("needs_nodes")]


def done(run: Run, *words: str) -> tuple[int, str, str]:
    """The exit code and the output of a command on the stack."""
    process = run.start(*command(words[0], str(run.file), *words[1:]))
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.mark.parametrize("cloud", CLOUDS)
def test_checks_and_up_of_each_cloud(cloud: str, tmp_path: Path) -> None:
    """`plan --live` and `doctor` find no error, `up` deploys verified nodes, checks them again, and the stack can be listed."""
    options = Options(stack=str(stack_file(cloud, tmp_path)), folder=tmp_path / "r", deadline="240s")
    with open_session(options, view_for(io.StringIO())) as session:
        run = Run(session, tmp_path / "state")
        for words in (("plan", "--live"), ("doctor",)):
            out, err = done(run, *words)[1:]
            # The provider's plugin is a stand-in, so `doctor` does not find the real one.
            problems = [line for line in out.splitlines() if line.startswith("error") and " plugin " not in line]
            assert problems == [], out + err
            assert "ok       machine" in out, out + err
            assert "ok       state" in out, out + err
        for _ in range(2):
            code, out, err = run.up("--json")
            assert code == 0, out + err
            document = json.loads(out)
            assert (document["ok"], document["error"], document["on_failure"]) == (True, "", None)
            assert document["result"].startswith("1 of 1 nodes")
            assert "find-ready" in err
        code, out, err = done(run, "nodes", "--json")
        assert code == 0, out + err
        assert [one["state"] for one in json.loads(out)["nodes"]] == ["verified"]
        if cloud == "aws":
            # Google Cloud requires the gcloud CLI for this command, and the stack on Azure has no key.
            code, out, err = done(run, "ssh", "--config")
            assert (code, "to connect: ssh -F " in out) == (0, True), out + err
        code, out, err = done(run, "calendar")
        assert code == 0, out + err
        code, out, err = done(run, "env", "--hostfile")
        assert code == 0, out + err
        assert len(out.splitlines()) == 1
        assert run.changes() == []

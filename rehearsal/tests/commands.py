"""Commands on a rehearsed cluster that is up."""

from __future__ import annotations

import json
import os
import sys

from tests.remote.servers import needed_from_here

from .conftest import Finished, command, run


def assert_commands_work(up: Finished) -> None:
    """`verify` reads the bucket and checks over SSH, `bootstrap` finds nothing to do, `run` runs, with the handover's host keys."""
    assert_state_is_read_through_the_engine(up)
    needed_from_here()
    place = ("aws-p4d", "--rehearsal", "--folder", str(up.root.parent))
    page, kept = up.root / "verify.html", up.root / "kept"
    read = run(command("verify", *place, "--json", "--html", str(page), "--save", str(kept)), up.root)
    assert read.code == 0, read.out + read.err
    said = json.loads(read.out)
    assert (said["verified"], said["rehearsal"]) == (True, True)
    assert said["totals"] == {"nodes": 4, "nodes_verified": 4, "gpus": 32, "gpus_verified": 32}
    assert [node["label"] for node in said["nodes"]] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert "evidence bucket" in said["about"]
    assert "stand-in nodes" in page.read_text()
    assert sorted(path.name for path in kept.iterdir()) == [f"gpu-{n}.json" for n in (1, 2, 3, 4)]
    asked = run(command("check", *place, "--baseline", str(kept), "--phase", "presence"), up.root)
    assert asked.code == 0, asked.out + asked.err
    assert "rehearsal" in asked.out.splitlines()[0]
    assert "4 of 4 nodes verified. Checked over SSH" in asked.out
    assert "worse than the baseline" not in asked.out
    again = run(command("bootstrap", *place, "--json"), up.root)
    assert again.code == 0, again.out + again.err
    done = json.loads(again.out)
    assert done["summary"] == {"done": 4}
    assert all(host["already"] for host in done["hosts"])
    ran = run(command("run", *place, "--", "uname -n; nproc >/dev/null"), up.root)
    assert ran.code == 0, ran.out + ran.err
    assert "4 of 4 hosts succeeded" in ran.err
    inside = run(command("ssh", *place, "gpu-3", "systemctl is-active gpuinfra-verify.service; uname -n"), up.root)
    assert inside.out.splitlines()[-1].endswith("gpu-3"), inside.out + inside.err


def assert_state_is_read_through_the_engine(up: Finished) -> None:
    """The state is read with `pulumi stack export`, as for a deployed stack."""
    environment = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{up.root / 'state'}",
        "PULUMI_HOME": str(up.root / "home"),
        "PULUMI_CONFIG_PASSPHRASE": (up.root / "passphrase").read_text(),
    }
    program = "from gpuinfra.cli.stacks import exported; from gpuinfra.inventory import nodes_of; "
    ask = "print([node.name for node in nodes_of(exported(%r))])"
    words = [sys.executable, "-c", program + ask % "aws-p4d"]
    result = run(words, up.root, env=environment, cwd=up.root / "project")
    assert result.out.splitlines()[-1] == "['gpu-1', 'gpu-2', 'gpu-3', 'gpu-4']", result.out + result.err
    missing = run(
        [sys.executable, "-c", program + "exported('missing')"], up.root, env=environment, cwd=up.root / "project"
    )
    assert "no stack named 'missing' found" in missing.err

"""`gpuinfra ssh`, `cp` and `run` into rehearsed nodes of each cloud, with the real user, key and tunnel code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpuinfra.engine.keep import cache_folder
from tests.remote.servers import needed

from .conftest import Finished, Rehearse, command, run

pytestmark = needed()
STACKS = {
    "aws": """
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {cloud: aws, region: us-east-1, zone: use1-az6}
    pools: [{name: gpu, machine: p4d.24xlarge, capacity: {kind: on_demand, count: 2}}]
""",
    "azure": """
  azure-native:location: southcentralus
  gpuinfra:cluster:
    name: train
    where: {cloud: azure, region: southcentralus}
    pools: [{name: gpu, machine: Standard_ND96amsr_A100_v4, capacity: {kind: on_demand, count: 2}}]
    access: {evidence_from: [203.0.113.0/24], bastion: true, ssh_keys: ["KEY"]}
""",
    "gcp": """
  gcp:region: us-central1
  gpuinfra:cluster:
    name: train
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    pools: [{name: gpu, machine: a2-ultragpu-8g, capacity: {kind: on_demand, count: 2}}]
""",
}
USERS = {"aws": "ubuntu", "azure": "gpuinfra", "gcp": "sa_"}


def on(up: Finished, file: Path, name: str, *words: str, home: Path) -> Finished:
    """A command on the rehearsed stack, by an operator with this home folder."""
    env = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"} | {"HOME": str(home)}
    env["XDG_CACHE_HOME"] = str(cache_folder().parent)
    place = (str(file), "--rehearsal", "--folder", str(up.root.parent))
    return run(command(name, *place, *words), up.root, env=env)


@pytest.mark.parametrize("cloud", list(STACKS))
def test_login_of_each_cloud(rehearse: Rehearse, needs_nodes: None, tmp_path: Path, cloud: str) -> None:
    """ssh, scp and the fleet log in with the user and key of the cloud, through its tunnel. Another operator's key is refused. A node can be replaced."""
    home, other = tmp_path / "home", tmp_path / "other"
    for folder in (home, other):
        (folder / ".ssh").mkdir(parents=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / ".ssh/id_ed25519")], check=True
        )
    public = (home / ".ssh/id_ed25519.pub").read_text().strip()
    file = tmp_path / f"Pulumi.{cloud}.yaml"
    file.write_text("config:" + STACKS[cloud].replace("KEY", public))
    up = rehearse("up", str(file))
    assert up.code == 0, up.out[-3000:] + up.err
    ran = on(up, file, "run", "--", "echo $SUDO_USER; test $USER = root && uname -n", home=home)
    assert ran.code == 0, ran.out + ran.err
    assert "2 of 2 hosts succeeded" in ran.err
    assert USERS[cloud] in ran.out
    assert "train-gpu-2" in ran.out
    line = "echo $NODE_RANK/$NNODES $LOCAL_RANK/$WORLD_SIZE $(id -un)"
    job = on(up, file, "run", "-N", "2", "--per-gpu", "--logs", str(tmp_path / "logs"), "--", line, home=home)
    assert job.code == 0, job.out + job.err
    lines = job.out.splitlines()
    assert len(lines) == 16
    assert "gpu-2 | 1/2 7/16 " in job.out
    launcher = on(up, file, "env", "--hostfile", home=home)
    assert (launcher.code, launcher.out.count(" slots=8\n")) == (0, 2), launcher.err
    if cloud != "azure":
        (tmp_path / "sent").write_text("content")
        sent = on(up, file, "cp", str(tmp_path / "sent"), "gpu-2:there", home=home)
        assert sent.code == 0, sent.out + sent.err
        back = on(up, file, "cp", "gpu-2:there", str(tmp_path / "back"), home=home)
        assert back.code == 0, back.out + back.err
        assert (tmp_path / "back").read_text() == "content"
    if cloud == "azure":
        # OpenSSH takes its default keys from the password database and not from HOME, so only the fleet can be tested.
        refused = on(up, file, "run", "--", "true", home=other)
        assert refused.code == 1
        assert "refused the login of gpuinfra" in refused.err
    else:
        inside = on(up, file, "ssh", "gpu-2", "echo $LOGNAME; sudo -n uname -n", home=other)
        assert inside.code == 0, inside.out + inside.err
        assert USERS[cloud] in inside.out
        assert "train-gpu-2" in inside.out
    replaced = on(up, file, "replace", "gpu-2", "--yes", "--json", "--save", str(tmp_path / "out"), home=home)
    assert replaced.code == 0, replaced.out + replaced.err
    (node,) = json.loads(replaced.out)["nodes"]
    assert (node["replacement"]["outcome"], node["jobs"][:19]) == ("verified", "0 processes stopped")

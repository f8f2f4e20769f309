"""Copies of images in the second region: in the stand-in cloud, in the stack file of the second region, and in `gpuinfra ready`."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import grpc
import pytest
from click.testing import CliRunner

from gpuinfra.base.shipped import shipped
from gpuinfra.cli.clone import command as clone_command
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.replicas import image_values, replicas_of
from gpuinfra.region.readiness import second_of
from gpuinfra.spec.load import read_stack
from tests.clouds.stacks import TODAY
from tests.region.clone.deployed import Deployed
from tests.region.clone.test_protections import _operate, ready

STACK, FIRST, SECOND = "aws-recovery", "us-east-2", "us-west-2"
IMAGE, COPY = "ami-0123456789abcdef0", "aws:ec2/amiCopy:AmiCopy"
Saved = tuple[Deployed, Path, Any]


def written(folder: Path, image: str = IMAGE) -> Path:
    """The shipped stack with an image that is selected by its ID and copied."""
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    text = (shipped("stacks") / f"Pulumi.{STACK}.yaml").read_text()
    text = text.replace(
        "      - name: gpu\n", f"      - name: gpu\n        image: {{ref: {image}, os: ubuntu-22.04}}\n"
    )
    path = folder / f"Pulumi.{STACK}.yaml"
    path.write_text(text.replace("      mode: cold\n", "      mode: cold\n      copy_images: true\n"))
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    """The stack in the stand-in cloud, the folder with its files, and a copy of the cloud."""
    folder = tmp_path_factory.mktemp("project")
    stack = read_stack(path := written(folder))
    one = Deployed(stack, tmp_path_factory.mktemp("cloud"))
    found = replicas_of(one.resources)
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", found.buckets["scratch-0"]), *image_values(stack, found.images))  # fmt: skip
    made = clone(stack, path.read_text(), CloneRequest(region=SECOND, values=values), TODAY)
    assert made.ok, made.findings
    (file,) = made.files
    file.path.write_text(file.text)
    with pytest.MonkeyPatch.context() as patch:
        _operate(patch, one)
        ready(path)  # The stand-in replicates the bundle when a request reads the bucket.
    yield one, folder, one.save()
    one.close()


@pytest.fixture
def pair(saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Deployed, Path, Path]:
    """The stack, and the files of both regions."""
    one, folder, copy = saved
    one.restore(copy)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    _operate(monkeypatch, one)
    return one, tmp_path / f"Pulumi.{STACK}.yaml", tmp_path / f"Pulumi.{STACK}-{SECOND}.yaml"


def failed(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """The lines of `gpuinfra ready` that fail."""
    return {key: one for key, one in ready(path)[1].items() if one["state"] == "fail"}


def test_state_contains_the_copy(pair: tuple[Deployed, Path, Path]) -> None:
    """The state maps the image of the stack to its copy in the second region, which the stand-in describes there and not in the first region."""
    one, _, second = pair
    copy = one.first(COPY)
    assert copy["outputs"]["region"] == SECOND
    assert replicas_of(one.resources).images == {IMAGE: copy["id"]}
    assert f"ref: {copy['id']}" in second.read_text()


def test_second_region_with_the_copy_is_ready(pair: tuple[Deployed, Path, Path]) -> None:
    """No line fails, and the line about the image names the copy."""
    one, path, _ = pair
    code, lines = ready(path)
    assert code == 0, lines
    assert one.first(COPY)["id"] in lines["image", "pools[0].image.ref"]["reason"]


def test_clone_without_the_copy_names_the_output(pair: tuple[Deployed, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A clone that has no ID for the image fails, and the message has the command that prints the ID of the copy."""
    _, path, _ = pair
    monkeypatch.chdir(path.parent)
    done = CliRunner().invoke(clone_command, [STACK, "--region", SECOND, "--dry-run"])
    assert f"pulumi stack output recovery --stack {STACK}" in done.output


@pytest.mark.parametrize("mode", ["cold", "pilot-light", "hot"])
def test_a_clone_copies_no_images_back(tmp_path: Path, mode: Literal["cold", "pilot-light", "hot"]) -> None:
    """The image of the stack exists in the first region, so no file of the clone copies an image to it.
    With `pilot-light`, the file with the network has no pools."""
    stack = read_stack(path := written(tmp_path))
    values = image_values(stack, {IMAGE: "ami-0abcdefabcdefabcd"})
    made = clone(stack, path.read_text(), CloneRequest(region=SECOND, mode=mode, values=values), TODAY)
    assert made.ok, made.findings
    assert [one.declaration["recovery"]["region"] for one in made.files[:1]] == [FIRST]
    assert not any("copy_images" in (one.declaration.get("recovery") or {}) for one in made.files)


def test_files_of_a_pilot_light_keep_the_replica_with_the_copy(tmp_path: Path) -> None:
    """With `pilot-light`, the image is in the file with the nodes and the replica in the file with the network.
    `ready` reads both, so neither file differs from a new clone."""
    path = written(tmp_path)
    path.write_text(re.sub(r" *site_minutes: .*\n", "", path.read_text().replace("mode: cold", "mode: pilot-light")))
    stack, copies = read_stack(path), {IMAGE: "ami-0abcdefabcdefabcd"}
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", "replica-of-scratch"), *image_values(stack, copies))
    made = clone(stack, path.read_text(), CloneRequest(region=SECOND, mode="pilot-light", values=values), TODAY)
    assert [one.path.write_text(one.text) > 0 for one in made.files] == [True, True]
    for known in (copies, {}):
        second = second_of(stack, "gpuinfra", TODAY, {}, copies=known)
        assert [one for one in second.lines if one.state == "fail"] == []
        assert "storage[0].bucket=replica-of-scratch" in second.rewrite


def test_missing_copy_fails(pair: tuple[Deployed, Path, Path]) -> None:
    """A copy that was deleted in the second region is the only line that fails."""
    one, path, _ = pair
    one.vanish(copy := one.first(COPY))
    ((topic, name),) = failed(path)
    assert (topic, name) == ("image", copy["id"])


def test_copy_of_an_earlier_image_fails(pair: tuple[Deployed, Path, Path]) -> None:
    """After the stack selects another image, its copy is missing in the state. The file of the second region must not use the copy of the earlier image."""
    one, path, _ = pair
    path.write_text(path.read_text().replace(IMAGE, "ami-0fedcba9876543210"))
    assert ("image", "ami-0fedcba9876543210") in failed(path)
    copy = one.first(COPY)
    component = next(each for each in one.resources if each["type"].endswith(":RegionClone"))
    try:
        component["outputs"]["images"] = {"ami-0fedcba9876543210": "ami-0abcdefabcdefabcd"}
        line = failed(path)["image", "pools[0].image.ref"]
    finally:
        component["outputs"]["images"] = {IMAGE: copy["id"]}
    assert copy["id"] in line["reason"]
    assert "ami-0abcdefabcdefabcd" in line["fix"]
    assert copy["id"] not in line["fix"]


def test_fix_of_a_wrong_image_uses_the_copy(pair: tuple[Deployed, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that selects another image than the copy fails, and the command of the line makes it ready."""
    one, path, second = pair
    copy = one.first(COPY)["id"]
    one.ask("external", id="ami-0fedcba9876543210", regions=[SECOND])
    second.write_text(second.read_text().replace(copy, "ami-0fedcba9876543210"))
    line = failed(path)["image", "pools[0].image.ref"]
    _, _, *words = shlex.split(line["fix"])
    monkeypatch.chdir(path.parent)
    done = CliRunner().invoke(clone_command, words)
    assert failed(path) == {}, done.output


def test_missing_file_is_written_with_the_copy(pair: tuple[Deployed, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Without a file of the second region, the command of `ready` writes one that uses the copy."""
    one, path, second = pair
    second.unlink()
    line = failed(path)["stack file", f"{STACK}-{SECOND}"]
    _, _, *words = shlex.split(line["fix"])
    monkeypatch.chdir(path.parent)
    CliRunner().invoke(clone_command, words)
    assert one.first(COPY)["id"] in second.read_text()


def test_image_that_does_not_exist_cannot_be_copied(tmp_path: Path) -> None:
    """EC2 rejects the copy of an image that does not exist in the first region."""
    path = written(tmp_path, "ami-00000000000000bad")
    stack = read_stack(path)
    with pytest.raises((grpc.RpcError, Exception), match=r"InvalidAMIID\.NotFound"):
        Deployed(stack, tmp_path / "cloud")

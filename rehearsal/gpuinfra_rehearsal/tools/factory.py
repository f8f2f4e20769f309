"""Builds the disk for the first boot from the packages and files of an image (`images.json`)."""

from __future__ import annotations

from . import kernel
from .packages import install
from .state import State, change_state, read_state, write_file
from .unitfile import enable
from .universe import Universe, table

BASE_UNITS = "/usr/lib/systemd/system"


def build() -> None:
    """Install the base units, then the packages of the image."""
    state = read_state()
    images = table("images.json")
    kind = "prebuilt" if state["image"]["prebuilt"] else "plain"
    image = images["images"][f"{state['instance']['cloud']}/{state['image']['os']}/{kind}"]
    units = table("units.json")
    for name in units["base"]:
        write_file(f"{BASE_UNITS}/{name}", "\n".join(units["units"][name]) + "\n")
        enable(name)

    def change(state: State) -> None:
        state["image"].update(used_gib=image["used_gib"], scratch=image.get("scratch"))
        state["image"].setdefault("root_gib", 200)

    change_state(change)
    universe = Universe(state)
    chosen: dict[str, str] = {}
    for name, version in {**images["common"], **image["packages"]}.items():
        _choose(universe, name, version, chosen)
    install(chosen, origin="image", services=False)
    for path, text in image.get("files", {}).items():
        write_file(path, text)
    for path, unit in image.get("unit_files", {}).items():
        write_file(path, "\n".join(units["units"][unit]) + "\n")
    for unit in image.get("unit_enable", []):
        enable(unit)
    if "image-profile" in state["faults"]:
        write_file("/etc/profile.d/zz-site.sh", "export HF_HOME=/opt/site/huggingface\n")
    if "nccl-environment" in state["faults"]:
        write_file("/root/.nccl.conf", "NCCL_NET_PLUGIN=none\nNCCL_IB_DISABLE=1\n")
    if image.get("efa") and state["hardware"]["efa"]:
        from .vendor import install_efa

        install_efa(image["efa"], universe.data["efa"][image["efa"]])
    change_state(_mark_complete)


def _choose(universe: Universe, name: str, version: str, chosen: dict[str, str]) -> None:
    """Choose a package and its dependencies. An image can contain packages without their repository."""
    entry = universe.get(name)
    if entry is None or name in chosen:
        return
    version = version or entry["versions"][-1]
    for need in entry.get("depends", []):
        other, _, relation = universe.fill(entry, version, need).partition(" ")
        same = universe.get(other)
        exact = version if same and "same" in relation and version in same["versions"] else ""
        _choose(universe, other, exact, chosen)
    chosen[name] = version


def _mark_complete(state: State) -> None:
    """Mark the disk as complete. Nothing in an image is loaded before it boots. If the process is killed earlier, the
    disk is rebuilt."""
    state["modules"] = []
    kernel.describe_driver(state)
    state["image"]["complete"] = True

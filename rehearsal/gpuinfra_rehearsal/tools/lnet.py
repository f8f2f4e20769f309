"""`lnetctl`: the Lustre network configuration of a stand-in node, which lasts until the next boot.

Messages arrive over EFA once a file system is mounted while EFA is preferred. The fault `lustre-over-tcp` simulates a
security group that blocks them.
"""

from __future__ import annotations

import os
import sys

from .state import State, change_state, fail, read_state

CREDITS = {"tcp": "8", "efa": "32"}


def lnetctl(argv: list[str]) -> int:
    """`lnet configure`, `net add|del|show`, `set discovery`, `udsp add|show`."""
    state = read_state()
    if argv[:1] in (["--version"], ["version"]):
        from .vendor import lfs

        return lfs(["--version"])
    if "lnet" not in state["modules"]:
        return fail("lnetctl: /dev/lnet: No such device; is lnet loaded?", 1)
    words = [word for word in argv if not word.startswith("-")]
    if argv[:2] == ["lnet", "configure"] or argv[:2] == ["set", "discovery"]:
        return 0
    if argv[:2] == ["net", "add"]:
        return _add(state, _value(argv, "--net"), _value(argv, "--if"))
    if argv[:2] == ["net", "del"]:
        return _change(lambda lnet: lnet["nets"].pop(_value(argv, "--net"), None))
    if argv[:2] == ["net", "show"]:
        return _show(state, _value(argv, "--net"), "-v" in argv)
    if argv[:2] == ["udsp", "add"]:
        return _change(lambda lnet: lnet.update(prefers=_value(argv, "--src")))
    if argv[:2] == ["udsp", "show"]:
        source = configuration(state)["prefers"]
        sys.stdout.write(f"udsp:\n    - idx: 0\n      src: {source}\n      dst: NA\n      rte: NA\n" if source else "")
        return 0
    return fail(f"lnetctl: the stand-in does not support {' '.join(words[:2])}", 1)


def configuration(state: State) -> dict:
    """The configuration of this boot. The Lustre module adds the TCP network itself."""
    lnet = state.get("lnet") or {}
    if lnet.get("boot_id") != state["boot_id"]:
        lnet = {"boot_id": state["boot_id"], "nets": {}, "prefers": ""}
    if "lustre" in state["modules"]:
        lnet["nets"].setdefault("tcp", ["eth0"])
    return lnet


def _value(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1] if name in argv[:-1] else ""


def _change(what: object) -> int:
    def change(state: State) -> None:
        state["lnet"] = configuration(state)
        what(state["lnet"])  # type: ignore[operator]

    change_state(change)
    return 0


def _add(state: State, net: str, interface: str) -> int:
    problem = ""
    if net == "efa" and "kefalnd" not in state["modules"]:
        problem = "LND module kefalnd is not loaded"
    elif net == "efa" and not os.path.isdir(f"/sys/class/infiniband/{interface}"):
        problem = "cannot add network: No such device"
    elif interface in configuration(state)["nets"].get(net, []):
        problem = "cannot add network: File exists"
    if problem:
        sys.stderr.write(f'add:\n    - net:\n          errno: -22\n          descr: "{problem}"\n')
        return 234
    return _change(lambda lnet: lnet["nets"].setdefault(net, []).append(interface))


def _show(state: State, only: str, whole: bool) -> int:
    lnet = configuration(state)
    mounted = any(item["type"] == "lustre" for item in state["mounts"])
    heard = mounted and lnet["prefers"].startswith("efa") and "lustre-over-tcp" not in state["faults"]
    lines = ["net:"]
    for net, interfaces in {"lo": [""], **lnet["nets"]}.items():
        if only and net != only:
            continue
        lines += [f"    - net type: {net}", "      local NI(s):"]
        for number, interface in enumerate(interfaces):
            lines += [f"        - nid: {'0@lo' if net == 'lo' else f'10.0.{number}.10@{net}'}", "          status: up"]
            if interface:
                lines += ["          interfaces:", f"              0: {interface}"]
            if whole:
                count = 4096 if (net == "efa" and heard) or (net == "tcp" and mounted) else 0
                lines += [
                    "          statistics:", f"              send_count: {count}", f"              recv_count: {count}",
                    "              drop_count: 0", "          tunables:", f"              peer_credits: {CREDITS.get(net, '0')}",
                ]  # fmt: skip
    if len(lines) > 1:
        sys.stdout.write("\n".join(lines) + "\n")
    return 0

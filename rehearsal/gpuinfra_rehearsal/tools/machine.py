"""System commands: journalctl, ldconfig, logger, pgrep, sysctl, systemd-detect-virt, timedatectl."""

from __future__ import annotations

import os
import sys

from .arguments import Arguments
from .state import change_state, fail, read_state, read_text, walk

JOURNAL = "/var/log/journal/stand-in.log"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib")


_JOURNAL_OPTIONS = {
    "-u": "unit", "--unit": "unit", "-t": "ident", "--identifier": "ident", "-o": "output", "--output": "output", "-n": "lines",
    "--lines": "lines", "-S": "since", "--since": "since", "-p": "priority",
}  # fmt: skip


def journalctl(argv: list[str]) -> int:
    """`-u UNIT`, `-b`, `-n N`, `-o cat`, `-t IDENT`; the kernel log (`-k`) is a device tool."""
    if any(word in ("-k", "--dmesg") for word in argv) or any(
        word[:1] == "-" and word[1:2] != "-" and "k" in word for word in argv
    ):
        from . import device_tools

        return device_tools.run(["journalctl", *argv])
    arguments = Arguments(argv, _JOURNAL_OPTIONS)
    units = [value if "." in value else value + ".service" for value in arguments.all("unit")]
    idents, boot, form = arguments.all("ident"), arguments.has("-b", "--boot"), arguments.one("output", "short")
    count = arguments.one("lines", "0")
    last = int(count) if count.isdigit() else 10
    this = read_state()["boot_id"]
    lines = []
    for line in read_text(JOURNAL, "").splitlines():
        moment, where, unit, ident, text = (line.split("\t", 4) + [""] * 5)[:5]
        if boot and where != this:
            continue
        about = unit in units or (unit == "systemd" and any(text.startswith(name) for name in units))
        if (units and not about) or (idents and ident not in idents):
            continue
        lines.append(text if form == "cat" else f"{_moment(float(moment or 0))} {os.uname().nodename} {ident}: {text}")
    lines = lines[-last:] if last else lines
    sys.stdout.write("\n".join(lines or ["-- No entries --"]) + "\n")
    return 0


def ldconfig(argv: list[str]) -> int:
    """`-p` lists the libraries of the node's packages. The loader uses the host's cache."""
    if "-p" not in argv and "--print-cache" not in argv:
        return 0
    folders = list(LIBRARIES)
    for path in walk("/etc/ld.so.conf.d"):
        folders += [line.strip() for line in read_text(path).splitlines() if line.startswith("/")]
    lines = []
    for folder in dict.fromkeys(folders):
        if not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            target = f"{folder}/{name}"
            if ".so" in name and not (os.path.islink(target) and os.readlink(target).startswith("/.host")):
                lines.append(f"\t{name} (libc6,x86-64) => {target}")
    sys.stdout.write(f"{len(lines)} libs found in cache `/etc/ld.so.cache'\n" + "".join(line + "\n" for line in lines))
    return 0


def logger(argv: list[str]) -> int:
    """Write to the node's journal."""
    import time

    arguments = Arguments(argv, {"-t": "tag", "--tag": "tag", "-p": "priority", "--priority": "priority"})
    ident, words = arguments.one("tag", "root"), arguments.words
    text = " ".join(words) or sys.stdin.read()
    with open(JOURNAL, "a", encoding="utf-8") as file:
        for line in text.splitlines():
            file.write(f"{time.time():.6f}\t{read_state()['boot_id']}\t-\t{ident}\t{line}\n")
    return 0


def sysctl(argv: list[str]) -> int:
    """`-w NAME=VALUE`, `-n NAME`, `--system`. Values are stored in the node's state and do not affect the host's kernel."""
    values = {
        word.partition("=")[0]: word.partition("=")[2] for word in argv if "=" in word and not word.startswith("-")
    }
    if "--system" in argv or "-p" in argv:
        for path in walk("/etc/sysctl.d"):
            for line in read_text(path).splitlines():
                if "=" in line and line[0] not in "#;":
                    name, _, value = line.partition("=")
                    values[name.strip()] = value.strip()
    if values:
        change_state(lambda state: state["sysctl"].update(values))
        sys.stdout.write("".join(f"{name} = {value}\n" for name, value in values.items()))
        return 0
    worst = 0
    for name in [word for word in argv if not word.startswith("-")]:
        value = read_state()["sysctl"].get(name) or read_text("/proc/sys/" + name.replace(".", "/"), "").strip()
        if not value:
            worst = fail(f"sysctl: cannot stat /proc/sys/{name.replace('.', '/')}: No such file or directory")
        else:
            sys.stdout.write(value + "\n" if "-n" in argv else f"{name} = {value}\n")
    return worst


def detect_virt(argv: list[str]) -> int:
    """The cloud's hypervisor."""
    del argv
    sys.stdout.write({"aws": "amazon", "azure": "microsoft", "gcp": "google"}[read_state()["instance"]["cloud"]] + "\n")
    return 0


def pgrep(argv: list[str]) -> int:
    """`pgrep -a -x NAME`. A stand-in command runs in an interpreter, which is omitted from the output."""
    name, code = argv[-1], 1
    for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if read_text(f"/proc/{entry}/comm", "").strip() == name[:15]:
            words = read_text(f"/proc/{entry}/cmdline", "").rstrip("\0").split("\0")
            start = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == name), 0)
            sys.stdout.write(f"{entry} {' '.join(words[start:])}\n" if "-a" in argv else f"{entry}\n")
            code = 0
    return code


def timedatectl(argv: list[str]) -> int:
    """The host's clock, reported as synchronized."""
    del argv
    sys.stdout.write("NTPSynchronized=yes\nSystem clock synchronized: yes\n")
    return 0


def _moment(seconds: float) -> str:
    import time

    return time.strftime("%b %d %H:%M:%S", time.gmtime(seconds))

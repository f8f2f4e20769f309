"""The shared libraries of the steps, in real bash; only apt and dpkg are stand-ins in PATH."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from tests.servers import Answering, serve

LIB = shipped("bootstrap") / "lib.sh"


@dataclass
class Shell:
    """Runs bash snippets after lib.sh."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str, body: str) -> None:
        """A stand-in in PATH that also records its calls."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.folder}/calls"\n{body}', encoding="utf-8")
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """The calls of the stand-ins."""
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def run(self, body: str, **environment: str) -> tuple[int, str]:
        """Exit code, and output and report together."""
        report = self.folder / "report"
        report.write_text("", encoding="utf-8")
        env = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GPUINFRA_REPORT": str(report),
        }
        env |= {"GPUINFRA_RETRY_PAUSE_S": "0", **self.environment, **environment}
        script = f'set -euo pipefail\n. "{LIB}"\n{body}'
        answer = subprocess.run(
            ["bash", "-c", script], env=env, capture_output=True, text=True, check=False, timeout=300
        )
        return answer.returncode, answer.stdout + answer.stderr + report.read_text(encoding="utf-8")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Bash with lib.sh in a separate folder."""
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("version", "low", "high", "inside"),
    [
        ("580.126.20", "580.95", "581", True),
        ("580.95.05", "580.95", "581", True),
        ("580.95", "580.95", "581", True),
        ("580.9.1", "580.95", "581", False),
        ("581", "580.95", "581", False),
        ("581.1", "580.95", "581", False),
        ("570.211.01", "580.95", "581", False),
        ("2.28.9-1+cuda13.0", "2.23", "3", True),
        ("1.9", "1.18", "2", False),
        ("1.51.0", "", "", True),
        ("1.51.0", "", "1.51.0", False),
        ("", "1", "2", False),
    ],
)
def test_ranges_are_half_open(shell: Shell, version: str, low: str, high: str, inside: bool) -> None:
    """The lower bound is included and the upper one excluded, compared number by number."""
    code, _ = shell.run(f"version_in '{version}' '{low}' '{high}' || exit 7")
    assert (code == 0) is inside


@pytest.mark.parametrize(
    ("environment", "version", "accepted"),
    [
        ({"X_VERSION": "5.1"}, "5.1", True),
        ({"X_VERSION": "5.1"}, "5.2", False),
        ({"X_VERSION": "5.1", "X_RANGE_MIN": "5", "X_RANGE_MAX": "6"}, "5.2", True),
        ({"X_VERSION": "6.1", "X_RANGE_MIN": "5", "X_RANGE_MAX": "6"}, "6.1", True),
        ({"X_VERSION": "5.1", "X_RANGE_MIN": "5", "X_RANGE_MAX": "6"}, "", False),
        ({}, "", False),
    ],
)
def test_pin_or_range_is_accepted(shell: Shell, environment: dict[str, str], version: str, accepted: bool) -> None:
    """Without a range only the pin is accepted; an empty version never is."""
    code, _ = shell.run(f"accepted X '{version}' || exit 7", **environment)
    assert (code == 0) is accepted


def test_file_is_written_once(shell: Shell) -> None:
    """The second call changes nothing; other content replaces the file completely."""
    path = shell.folder / "etc/limits.conf"
    code, output = shell.run(f'put_file "{path}" "a b"; put_file "{path}" "a b" || echo same')
    assert code == 0
    assert output.count("changed\t") == 1
    assert "same" in output
    path.write_text("other\n", encoding="utf-8")
    shell.run(f'put_file "{path}" "a b"')
    assert path.read_text(encoding="utf-8") == "a b\n"


def test_dry_run_writes_nothing(shell: Shell) -> None:
    """Each helper that changes something only reports the change."""
    shell.tool("dpkg-query", "exit 1\n")
    shell.tool("apt-get", "")
    shell.tool("apt-mark", "")
    path = shell.folder / "file"
    code, output = shell.run(
        f'put_file "{path}" text; install_packages a b=1; hold c; end_dry_run', GPUINFRA_DRY_RUN="1"
    )
    assert code == 0
    assert not path.exists()
    assert [line for line in output.splitlines() if line.startswith("would\t")] == [
        f"would\twrite {path}",
        "would\tinstall a b=1",
        "would\thold c",
    ]
    assert "apt-get" not in " ".join(shell.calls)


INSTALLED = """
case ${!#} in
  there) printf 'ii \\t1.20.0-1\\n' ;;
  manager) printf 'ii \\t580.126.20-1\\n' ;;
  removed) printf 'rc \\t1\\n' ;;
  half) printf 'iF \\t1\\n' ;;
  held) printf 'hi \\t2\\n' ;;
  *) exit 1 ;;
esac
"""


def test_only_missing_packages_are_installed(shell: Shell) -> None:
    """A package at the required version is not changed, even if held; removed and missing ones are installed."""
    shell.tool("dpkg-query", INSTALLED)
    shell.tool("dpkg", "")
    shell.tool("apt-get", "")
    code, output = shell.run(
        'install_packages there "there=1.20.0-1" "manager=580.126.20-*" held=2 removed new "manager=580.95-*"'
    )
    assert code == 0, output
    install = next(call for call in shell.calls if " install " in call)
    assert install.split(" install ")[1] == "removed new manager=580.95-*"
    assert "DPkg::Lock::Timeout=60" in install
    assert "--no-install-recommends" in install
    assert sum(" update" in call for call in shell.calls) == 1


@pytest.mark.parametrize(
    ("wanted", "code"), [("lustre=2.15.6-1", 0), ("lustre=2.15.6", 1), ("lustre=2.12", 1), ("other=2.15.6-1", 1)]
)
def test_a_version_is_offered_only_if_the_archive_has_it(shell: Shell, wanted: str, code: int) -> None:
    """The whole version is compared, as the archive lists it."""
    shell.tool(
        "apt-cache", '[[ $2 != lustre ]] || echo "lustre | 2.15.6-1 | https://archive.example noble/main amd64"\n'
    )
    assert shell.run(f"offered {wanted}")[0] == code


def test_apt_is_not_called_if_nothing_is_missing(shell: Shell) -> None:
    """If all packages are installed, apt is not called."""
    shell.tool("dpkg-query", INSTALLED)
    shell.tool("apt-get", "exit 9\n")
    code, output = shell.run("install_packages there held=2")
    assert code == 0
    assert "unchanged\tinstalled: there held=2" in output


def test_half_configured_packages_are_repaired_first(shell: Shell) -> None:
    """What a killed run left half configured is completed before the installation."""
    shell.tool("dpkg-query", "exit 1\n")
    mended = shell.folder / "mended"
    shell.tool(
        "dpkg", f"[[ $* != *--configure* ]] || touch {mended}\n[[ $1 != --audit || -e {mended} ]] || echo half\n"
    )
    shell.tool("apt-get", "")
    shell.run("install_packages new")
    order = [call.split()[0] for call in shell.calls if "--configure" in call or " install " in call]
    assert order == ["dpkg", "apt-get"]


def test_failing_apt_is_retried_and_reported(shell: Shell) -> None:
    """Three attempts, then one message with the last exit code."""
    shell.tool("dpkg-query", "exit 1\n")
    shell.tool("dpkg", "")
    shell.tool("apt-get", '[[ "$*" != *" install "* ]] || exit 100\n')
    code, output = shell.run("install_packages new")
    assert code == 1
    assert sum(" install " in call for call in shell.calls) == 3
    assert "failed\tinstalling new failed 3 times, last with exit code 100" in output


def test_only_missing_holds_are_set(shell: Shell) -> None:
    """A held package is not held again."""
    shell.tool("apt-mark", "[[ $1 != showhold ]] || echo nvidia-open\n")
    code, output = shell.run("hold nvidia-open libnccl2; hold nvidia-open")
    assert code == 0
    assert "apt-mark hold libnccl2" in shell.calls
    assert output.count("changed\t") == 1


@pytest.mark.parametrize(
    ("url", "mirror", "expected"),
    [
        ("https://vendor/a/b", "", "https://vendor/a/b"),
        ("https://vendor/a/b", "http://10.0.0.1/m/", "http://10.0.0.1/m/vendor/a/b"),
        ("/local", "http://10.0.0.1/m", "/local"),
    ],
)
def test_mirror_replaces_every_vendor(shell: Shell, url: str, mirror: str, expected: str) -> None:
    """The vendor's host becomes the first folder below the mirror."""
    assert shell.run(f"mirrored {url}", MIRROR_URL=mirror)[1].strip() == expected


@pytest.fixture
def web() -> Iterator[tuple[str, dict[str, list[tuple[int, bytes]]]]]:
    """A server; each path returns its answers in turn, and repeats the last one."""
    answers: dict[str, list[tuple[int, bytes]]] = {}

    class Handler(Answering):
        def do_GET(self) -> None:
            queue = answers.get(self.path, [(404, b"")])
            status, body = queue.pop(0) if len(queue) > 1 else queue[0]
            self.answer(status, body)

    with serve(Handler) as url:
        yield url, answers


GOOD = b"a package"
SUM = hashlib.sha256(GOOD).hexdigest()


def test_download_is_verified_by_checksum(shell: Shell, web: tuple[str, dict]) -> None:
    """A failing server is retried; a file with the right checksum is written and not downloaded twice."""
    base, answers = web
    answers["/p.deb"] = [(503, b""), (503, b""), (200, GOOD)]
    code, output = shell.run(f"fetch {base}/p.deb {SUM} {shell.folder}/p.deb")
    assert code == 0, output
    assert (shell.folder / "p.deb").read_bytes() == GOOD
    assert "attempt 2 of 4" in output
    answers["/p.deb"] = [(404, b"")]
    assert shell.run(f"fetch {base}/p.deb {SUM} {shell.folder}/p.deb")[0] == 0


def test_wrong_checksum_leaves_no_file(shell: Shell, web: tuple[str, dict]) -> None:
    """Other content is refused with both checksums, and no file is left."""
    base, answers = web
    answers["/p.deb"] = [(200, b"evil")]
    code, output = shell.run(f"fetch {base}/p.deb {SUM} {shell.folder}/p.deb")
    assert code == 1
    assert hashlib.sha256(b"evil").hexdigest() in output
    assert SUM in output
    assert not list(shell.folder.glob("p.deb*"))


def test_missing_file_is_reported(shell: Shell, web: tuple[str, dict]) -> None:
    """After its attempts a download fails with the address."""
    code, output = shell.run(f"fetch {web[0]}/none {SUM} {shell.folder}/p.deb")
    assert code == 1
    assert f"failed\tdownloading {web[0]}/none failed 4 times" in output


@dataclass
class Key:
    """A signing key for one test."""

    home: Path
    fingerprint: str
    public: Path

    def sign(self, file: Path) -> Path:
        """A detached signature beside the file."""
        subprocess.run(
            ["gpg", "--batch", "--yes", "--homedir", self.home, "--detach-sign", file], check=True, capture_output=True
        )
        return file.with_name(file.name + ".sig")


def make_key(folder: Path, name: str) -> Key:
    """A new key; skips the test without gpg."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    home = folder / f"gpg-{name}"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--batch", "--homedir", str(home)]
    subprocess.run(
        [*gpg, "--passphrase", "", "--quick-gen-key", f"{name}@example.com", "ed25519", "sign"],
        check=True,
        capture_output=True,
    )
    listing = subprocess.run([*gpg, "--list-keys", "--with-colons"], check=True, capture_output=True, text=True).stdout
    fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
    public = folder / f"{name}.asc"
    public.write_bytes(subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
    return Key(home, fingerprint, public)


@pytest.fixture
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Key, Key]]:
    """The vendor's key and another key."""
    folder = tmp_path_factory.mktemp("k")  # short: gpg's agent puts a socket below it
    pair = make_key(folder, "vendor"), make_key(folder, "other")
    yield pair
    for key in pair:
        subprocess.run(["gpgconf", "--homedir", str(key.home), "--kill", "all"], check=False, capture_output=True)


def test_signature_must_be_the_vendors(shell: Shell, keys: tuple[Key, Key]) -> None:
    """Real gpg: the vendor's signature passes; a changed file, another signer and another key fail."""
    vendor, other = keys
    file = shell.folder / "installer.tar.gz"
    file.write_bytes(GOOD)
    good = shutil.copy(vendor.sign(file), shell.folder / "good.sig")
    foreign = shutil.copy(other.sign(file), shell.folder / "foreign.sig")
    check = f"verify_signature {file} {{}} {{}} {vendor.fingerprint}"
    assert shell.run(check.format(good, vendor.public))[0] == 0
    assert shell.run(check.format(foreign, vendor.public))[0] == 1
    code, output = shell.run(check.format(foreign, other.public))
    assert code == 65
    assert f"no key in {other.public} has the lock's fingerprint {vendor.fingerprint}" in output
    both = shell.folder / "both.asc"
    both.write_bytes(other.public.read_bytes() + vendor.public.read_bytes())
    assert shell.run(check.format(good, both))[0] == 0
    assert shell.run(check.format(foreign, both))[0] == 1, "a file with several keys accepts the lock's key only"
    file.write_bytes(b"evil")
    code, output = shell.run(check.format(good, vendor.public))
    assert code == 1
    assert "does not match the key" in output


@pytest.mark.parametrize("state", ["revoked", "expired"])
def test_signature_of_a_key_that_is_no_longer_valid_fails(
    shell: Shell, keys: tuple[Key, Key], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real gpg reports VALIDSIG also for a correct signature of a revoked or expired key. The step ends, and a retry cannot help."""
    vendor, _ = keys
    file = shell.folder / "installer.tar.gz"
    file.write_bytes(GOOD)
    signature = vendor.sign(file)
    gpg = ["gpg", "--batch", "--homedir", str(vendor.home)]
    if state == "revoked":
        revocation = vendor.home / "openpgp-revocs.d" / f"{vendor.fingerprint}.rev"
        revocation.write_text(revocation.read_text().replace(":-----BEGIN", "-----BEGIN"))
        subprocess.run([*gpg, "--import", str(revocation)], check=True, capture_output=True)
    else:
        subprocess.run([*gpg, "--quick-set-expire", vendor.fingerprint, "seconds=1"], check=True, capture_output=True)
        time.sleep(2)
    vendor.public.write_bytes(subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout)
    told = subprocess.run(
        [*gpg, "--status-fd", "1", "--verify", str(signature), str(file)], capture_output=True, text=True
    )
    assert f"VALIDSIG {vendor.fingerprint}" in told.stdout
    code, output = shell.run(f"verify_signature {file} {signature} {vendor.public} {vendor.fingerprint}")
    assert code == 65
    assert "is by a key that is revoked or expired" in output


def test_repository_key_must_be_the_pinned_one(shell: Shell, keys: tuple[Key, Key], web: tuple[str, dict]) -> None:
    """A key with the pinned fingerprint becomes a keyring; any other is refused and nothing is written."""
    vendor, other = keys
    base, answers = web
    answers["/key"] = [(200, vendor.public.read_bytes())]
    answers["/both"] = [(200, vendor.public.read_bytes() + other.public.read_bytes())]
    ring = shell.folder / "ring.gpg"
    work = f"work_folder() {{ mkdir -p {shell.folder}/work; echo {shell.folder}/work; }}\n"
    assert shell.run(f"{work}fetch_key {base}/both {vendor.fingerprint} {ring}")[0] == 65
    assert shell.run(f"{work}fetch_key {base}/key {other.fingerprint} {ring}")[0] == 65
    assert not ring.exists()
    code, output = shell.run(f"{work}fetch_key {base}/key {vendor.fingerprint} {ring}; key_fingerprints {ring}")
    assert code == 0, output
    assert vendor.fingerprint in output


def test_all_missing_tools_are_listed(shell: Shell) -> None:
    """One message lists all missing tools, and the step is not retried."""
    code, output = shell.run("need_tools bash no-such-tool nor-this-one")
    assert code == 65
    assert "missing commands: no-such-tool nor-this-one" in output


def test_empty_variable_is_reported(shell: Shell) -> None:
    """A variable that the plan did not set is named."""
    code, output = shell.run("need_variables HOME DRIVER_VERSION")
    assert code == 65
    assert "DRIVER_VERSION is empty in versions.env" in output


def test_missing_versions_file_is_reported(shell: Shell) -> None:
    """Without versions.env a step does nothing."""
    code, output = shell.run("load_versions", GPUINFRA_VERSIONS=f"{shell.folder}/none")
    assert code == 65
    assert "versions.env does not exist" in output


def test_automount_is_triggered(shell: Shell) -> None:
    """After a reboot systemd has an automount in place; mounting over it fails, and accessing it mounts the file system."""
    looked = shell.folder / "looked"
    shell.tool(
        "findmnt",
        f'case "$*" in *autofs*) echo /scratch ;; *lustre*) [[ -e "{looked}" ]] && echo fs-1@tcp:/abc ;; esac\nexit 0\n',
    )
    shell.tool("ls", f'[[ $* == /scratch/. ]] && touch "{looked}"\n')
    shell.tool("mount", "echo already mounted >&2; exit 32\n")
    mounts = shipped("bootstrap") / "lib-mounts.sh"
    # The line is already in /etc/fstab.
    code, output = shell.run(f'. "{mounts}"; grep() {{ return 0; }}; mount_one lustre /scratch fs-1@tcp:/abc noatime')
    assert code == 0, output
    assert looked.exists()
    assert not [call for call in shell.calls if call.startswith("mount ")]


MOUNTS = shipped("bootstrap") / "lib-mounts.sh"


def mounting(shell: Shell) -> tuple[int, str]:
    """Mount homes whose line is already in /etc/fstab."""
    shell.tool("findmnt", "exit 1\n")
    shell.tool("mkdir", "")
    listed = 'grep() { [[ ${!#} == /etc/fstab ]] || command grep "$@"; }'
    return shell.run(f'. "{MOUNTS}"; {listed}; mount_one nfs /home 10.0.0.9:/home hard')


def test_a_refused_mount_ends_with_the_reason(shell: Shell) -> None:
    """The step reports the words of the server; the runner repeats the step, so the mount itself is tried three times only."""
    shell.tool("mount", "echo mount.nfs: access denied by server >&2; exit 32\n")
    code, output = mounting(shell)
    assert code == 1
    assert "mounting /home failed 3 times, last with exit code 32: mount.nfs: access denied by server" in output
    assert [call for call in shell.calls if call.startswith("mount ")] == ["mount /home"] * 3


def test_a_silent_server_ends_with_the_reason(shell: Shell) -> None:
    """A mount that hangs is ended, so the step reports the server before its own time limit ends it."""
    shell.tool("timeout", 'shift 2; echo $* >>"$HOME/limits"; exit 124\n')
    code, output = mounting(shell)
    assert code == 1
    assert (
        "mounting /home failed 3 times, last with exit code 124: the server of /home did not respond within 90 s"
        in output
    )
    assert (shell.folder / "limits").read_text(encoding="utf-8").splitlines() == ["90 mount /home"] * 3


DISK_FULL = """
Setting up linux-image-6.8.0-1041-aws (6.8.0-1041.43) ...
update-initramfs: Generating /boot/initrd.img-6.8.0-1041-aws
zstd: error 25 : Write error : No space left on device (cannot write compressed block)
E: mkinitramfs failure zstd -q -1 -T0 25
update-initramfs: failed for /boot/initrd.img-6.8.0-1041-aws with 1.
run-parts: /etc/kernel/postinst.d/initramfs-tools exited with return code 1
dpkg: error processing package linux-image-6.8.0-1041-aws (--configure):
 installed linux-image-6.8.0-1041-aws package post-installation script subprocess returned error exit status 1
Errors were encountered while processing:
 linux-image-6.8.0-1041-aws
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
"""A full /boot, from linuxmint/mintupdate issue 823 (Ubuntu 22.04), with another kernel."""
READ_ONLY = """
Unpacking htop (3) ...
dpkg: error processing archive /htop.deb (--unpack):
 unable to clean up mess surrounding './usr/bin/htop' before installing another version: Read-only file system
Errors were encountered while processing:
 /htop.deb
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
"""A read-only /usr, recorded with apt 2.6.1 and dpkg 1.21.22 on Debian 12."""
NO_BUILD = """
Building initial module for 6.8.0-1040-aws
Error! Bad return status for module build on kernel: 6.8.0-1040-aws (x86_64)
Consult /var/lib/dkms/nvidia/580.126.20/build/make.log for more information.
dpkg: error processing package nvidia-dkms-open (--configure):
 installed nvidia-dkms-open package post-installation script subprocess returned error exit status 10
Errors were encountered while processing:
 nvidia-dkms-open
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
"""A module that dkms cannot build, from pop-os/pop issue 3811, with another kernel and driver."""
NO_ARCHIVE = """
Err:1 http://archive.ubuntu.com/ubuntu jammy/main amd64 htop amd64 3.0.5
  503  Service Unavailable
E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/h/htop/htop_3.0.5_amd64.deb  503  Service Unavailable
E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?
"""
SCRIPT = """
dpkg: error processing package cuda-keyring (--configure):
 installed cuda-keyring package post-installation script subprocess returned error exit status 7
Errors were encountered while processing:
 cuda-keyring
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
WAITS = "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 9 (python3)..."
NO_LOCK = "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?"
DPKG_LOCK = (
    "dpkg: error: dpkg frontend lock was locked by another process with pid 9\n"
    "Note: removing the lock file is always wrong, can damage the locked area"
)
LOCKS = (
    f"{WAITS}\n{NO_LOCK}",
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 9 (python3)\nE: Unable to lock directory /var/lib/apt/lists/",
    DPKG_LOCK,
    f"{DPKG_LOCK}\nE: Sub-process dpkg --set-selections returned an error code (2)\nE: Executing dpkg failed. Are you root?",
)
"""The messages of apt 2.6.1 and dpkg 1.21.22 on a locked machine, recorded on Debian 12."""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (DISK_FULL, "zstd: error 25 : Write error : No space left on device (cannot write compressed block)"),
        (
            READ_ONLY,
            "unable to clean up mess surrounding './usr/bin/htop' before installing another version: Read-only",
        ),
        (
            NO_BUILD,
            "Error! Bad return status for module build on kernel: 6.8.0-1040-aws (x86_64) Consult /var/lib/dkms/nvidia/580.126.20/build/make.log for more",
        ),
        (NO_ARCHIVE, "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/h/htop/htop_3.0.5_amd64.deb  503"),
        (SCRIPT, "dpkg: error processing package cuda-keyring (--configure): installed cuda-keyring package post-inst"),
        (f"{WAITS}\n{NO_ARCHIVE}", "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/h/htop/htop_3.0.5"),
        ("curl: (6) Could not resolve host: a.example\n\n", "curl: (6) Could not resolve host: a.example"),
    ],
    ids=["full /boot", "read-only /usr", "dkms", "repository", "maintainer script", "after a lock", "another program"],
)
def test_a_failure_names_its_cause(shell: Shell, output: str, cause: str) -> None:
    """apt's summary `Sub-process /usr/bin/dpkg returned an error code (1)` hides the cause, which an earlier line names."""
    (shell.folder / "output").write_text(output, encoding="utf-8")
    shell.tool("apt-get", f'cat "{shell.folder}/output" >&2\nexit 100\n')
    code, said = shell.run('retry 1 "installing x" apt-get install x')
    assert code == 1
    assert f"failed\tinstalling x failed 1 times, last with exit code 100: {cause}" in said


@pytest.mark.parametrize("text", LOCKS, ids=["apt-get install", "apt-get update", "dpkg", "apt-mark hold"])
def test_a_lock_of_another_process_does_not_count_as_an_attempt(shell: Shell, text: str) -> None:
    """The command runs again until the lock is free; each wait names the lock and its holder."""
    (shell.folder / "output").write_text(text, encoding="utf-8")
    shell.tool(
        "apt-get", f'(($(wc -l <"{shell.folder}/calls") > 4)) || {{ cat "{shell.folder}/output" >&2; exit 100; }}\n'
    )
    code, said = shell.run('retry 1 "installing x" apt-get install x', GPUINFRA_LOCK_PAUSE_S="0")
    assert code == 0, said
    assert said.count(f"installing x waits: {text.splitlines()[0]}") == 4


def test_a_lock_that_is_never_released_ends_the_attempts(shell: Shell) -> None:
    """After the time limit, the step fails with the lock as its reason."""
    shell.tool("dpkg", f'echo "{NO_LOCK}" >&2; exit 2\n')
    code, said = shell.run('retry 2 "installing x" dpkg -i x', GPUINFRA_LOCK_PAUSE_S="0", GPUINFRA_LOCK_PATIENCE_S="0")
    assert code == 1
    assert f"failed\tinstalling x failed 2 times, last with exit code 2: {NO_LOCK}" in said


READS_ONLY = re.compile(
    r"apt-mark showhold|dpkg --audit|dpkg --print-architecture|apt-get --version|need_tools [a-z0-9. _-]*|need_variables .*"
)
CHANGES = re.compile(r"(?<![\w/.\"'=-])(apt-get|apt-mark|apt|dpkg)(?= [\"'\w-])")


@pytest.mark.parametrize("path", sorted(LIB.parent.rglob("*.sh")), ids=lambda path: path.name)
def test_packages_change_only_in_a_retry(path: Path) -> None:
    """`retry` waits for the locks of apt and dpkg; a direct call fails as soon as another process holds one."""
    text = re.sub(r"\\\n *", "", path.read_text(encoding="utf-8"))
    direct = []
    for line in text.splitlines():
        code = READS_ONLY.sub("", re.sub(r"(^|\s)#.*", "", line))
        code = re.sub(r"'[^']*'", "''", code)
        code = re.sub(r'"(?:[^"\\$]|\\.|\$[^(])*"', '""', code)  # messages
        found = CHANGES.search(code)
        if found and "retry " not in code[: found.start()]:
            direct.append(line.strip())
    assert not direct

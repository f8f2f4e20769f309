"""Builds real .deb files and signed repositories of them."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_KEPT = tempfile.TemporaryDirectory(prefix="gpuinfra-debs-")
"""Each package is built once per test run and then copied."""


@dataclass(frozen=True)
class Deb:
    """One package. `files` maps a path to its text; a path in `bin` or `sbin` becomes executable."""

    name: str
    version: str
    depends: str = ""
    files: dict[str, str] = field(default_factory=dict)
    postinst: str = ""
    conflicts: str = ""

    @property
    def file_name(self) -> str:
        """The file name in the vendors' form."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_all.deb"

    @property
    def control(self) -> str:
        """The fields that dpkg reads."""
        lines = [
            f"Package: {self.name}",
            f"Version: {self.version}",
            "Architecture: all",
            "Maintainer: stand-in <stand-in@example.com>",
            *([f"Depends: {self.depends}"] if self.depends else []),
            *([f"Conflicts: {self.conflicts}"] if self.conflicts else []),
            f"Description: stand-in for {self.name}",
        ]
        return "\n".join(lines) + "\n"

    def build(self, folder: Path) -> Path:
        """Build the .deb in that folder."""
        target = folder / self.file_name
        content = repr((self.control, sorted(self.files.items()), self.postinst))
        kept = Path(_KEPT.name) / hashlib.sha256(content.encode()).hexdigest()
        if not kept.exists():
            self._build(folder / f".{self.name}-{self.version}", kept)
        shutil.copyfile(kept, target)
        return target

    def _build(self, tree: Path, target: Path) -> None:
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(self.control, encoding="utf-8")
        if self.postinst:
            script = tree / "DEBIAN/postinst"
            script.write_text(f"#!/bin/bash\nset -e\n{self.postinst}\n", encoding="utf-8")
            script.chmod(0o755)
        for name, text in self.files.items():
            path = tree / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if path.parent.name in ("bin", "sbin") or path.suffix == ".sh" else 0o644)
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(target)]
        subprocess.run(command, check=True, capture_output=True)
        shutil.rmtree(tree)


@dataclass(frozen=True)
class Key:
    """A signing key."""

    home: Path
    fingerprint: str

    @property
    def public(self) -> bytes:
        """The public key, armored, as vendors publish it."""
        command = ["gpg", "--batch", "--homedir", str(self.home), "--armor", "--export"]
        return subprocess.run(command, check=True, capture_output=True).stdout

    @property
    def ring(self) -> bytes:
        """The public key in binary, as apt needs it."""
        command = ["gpg", "--batch", "--homedir", str(self.home), "--export"]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def sign(self, *how: str, source: Path, target: Path) -> None:
        """Sign a file."""
        command = ["gpg", "--batch", "--yes", "--homedir", str(self.home), *how, "-o", str(target), str(source)]
        subprocess.run(command, check=True, capture_output=True)

    def forget(self) -> None:
        """End the agent that gpg started for the key, and delete the key."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)


def make_key(name: str) -> Key:
    """A new key in a folder with a short name: gpg's agent creates a socket there, and a socket's path has at most 107 characters."""
    home = Path(tempfile.mkdtemp(prefix="gpg-"))
    gpg = ["gpg", "--batch", "--homedir", str(home)]
    made = [*gpg, "--passphrase", "", "--quick-gen-key", f"{name}@example.com", "ed25519", "sign"]
    subprocess.run(made, check=True, capture_output=True)
    listing = subprocess.run([*gpg, "--list-keys", "--with-colons"], check=True, capture_output=True, text=True).stdout
    return Key(home, next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr")))


def publish(
    folder: Path, suite: str, debs: list[Deb], key: Key, label: str = "stand-in", component: str = "main"
) -> None:
    """A signed repository: flat for the suite `/`, else `dists/SUITE/COMPONENT`."""
    folder.mkdir(parents=True, exist_ok=True)
    stanzas = []
    for deb in debs:
        path = deb.build(folder)
        data = path.read_bytes()
        where = f"Filename: ./{path.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        stanzas.append(deb.control + where)
    packages = ("\n".join(stanzas) + "\n").encode()
    top = folder if suite == "/" else folder / "dists" / suite
    lists = top if suite == "/" else top / component / "binary-amd64"
    lists.mkdir(parents=True, exist_ok=True)
    contents = {"Packages": packages, "Packages.gz": gzip.compress(packages, mtime=0)}
    for name, content in contents.items():
        (lists / name).write_bytes(content)
    sums = [
        f" {hashlib.sha256(content).hexdigest()} {len(content)} {(lists / name).relative_to(top)}"
        for name, content in contents.items()
    ]
    head = "" if suite == "/" else f"Suite: {suite}\nCodename: {suite}\nComponents: {component}\nArchitectures: amd64\n"
    release = top / "Release"
    release.write_text(
        f"Origin: stand-in\nLabel: {label}\n{head}Date: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n"
        + "\n".join(sums)
        + "\n",
        encoding="utf-8",
    )
    key.sign("--clearsign", source=release, target=top / "InRelease")

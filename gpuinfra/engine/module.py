"""The versions of Pulumi and Go in `engine/go.mod`, and a key that changes with the sources."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base.shipped import shipped

CLI = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
"""The Go package of the Pulumi CLI."""
HOST = "./cmd/pulumi-language-python"
"""The Go package of this project's language host, inside `engine/`."""
NODEJS = "./cmd/pulumi-language-nodejs"
"""The Go package of this project's language host for Node.js programs, inside `engine/`."""
YAML = "./cmd/pulumi-language-yaml"
"""The Go package of the language host for YAML programs, inside `engine/yaml/`."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """The Go module of the engine."""

    folder: Path
    version: str
    """Pulumi version without the leading v. An older `pulumi` on PATH is not used, because the tests use this version."""
    go: str
    """Minimum version of Go."""
    digest: str
    """Hash of all source files, so that a changed host is rebuilt."""

    def key(self, programs: tuple[str, ...]) -> str:
        """Return the name of the cache folder for these programs and sources."""
        return f"{self.version}-{self.digest[:12]}{self.ending(programs)}"

    @staticmethod
    def ending(programs: tuple[str, ...]) -> str:
        """Return the common suffix of the cache folders of these programs on this kind of machine."""
        machine = f"{sys.platform}-{platform.machine().lower()}"
        names = "-".join(sorted(program.rsplit("/", 1)[-1] for program in programs))
        return f"-{machine}-{names}"


def read_module(folder: Path | None = None) -> Module:
    """Read the versions from `engine/`. Tests pass a different `folder`."""
    folder = folder or shipped("engine")
    text = (folder / "go.mod").read_text()
    return Module(
        folder=folder,
        version=_only(r"^\s*(?:require )?github\.com/pulumi/pulumi/pkg/v3 v(\S+)", text),
        go=_only(r"^go (\S+)", text),
        digest=_digest(folder),
    )


def _only(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"engine/go.mod has no line that matches {pattern}")
    return match[1]


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    sources = [path for path in folder.rglob("*") if path.suffix in {".go", ".mod", ".sum"} and path.is_file()]
    # A folder with a `go.mod` of its own is another module, which does not change this one.
    others = {path.parent for path in sources if path.name == "go.mod"} - {folder}
    sources = [path for path in sources if others.isdisjoint(path.parents)]
    for path in sorted(sources, key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()

"""Node steps: declared scripts that run on the nodes after the bootstrap steps.

Script files are read when the declaration is parsed, so rules and plans depend only on the declaration.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr, StrictBool, StrictInt

from gpuinfra.spec.base import Name, SpecModel, Unit
from gpuinfra.spec.formats import text
from gpuinfra.spec.shown import contains_key

MAX_SCRIPT_BYTES = 256 * 1024
"""Maximum size of a script. Each node of the pool downloads the script in its bundle."""
FOLDER = "folder"
"""Key of the validation context that contains the folder of the stack file."""

StepFile = Annotated[
    str,
    text(
        r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        "a path relative to the folder of the stack file, such as setup/nvme.sh",
        max_length=200,
    ),
]
StepUrl = Annotated[
    str,
    text(
        r"^https://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._~/%+-]+$",
        "an https URL without a user, a query or a fragment, such as https://example.com/setup.sh",
        max_length=400,
    ),
]
Sha256 = Annotated[str, text(r"^[0-9a-f]{64}$", "a SHA-256 of 64 lowercase hexadecimal digits")]

AptPackage = Annotated[
    str,
    text(
        r"^[a-z0-9][a-z0-9.+-]+(=([0-9]+:)?[0-9][A-Za-z0-9.+~-]*)?$",
        "the name of an Ubuntu package with an optional version, such as htop or nvme-cli=2.8-1",
        max_length=150,
    ),
]
"""Debian Policy Manual 4.7, sections 5.6.1 (names) and 5.6.12 (versions)."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The content of a script or of another file, or the reason why a node cannot get it."""

    content: str = field(default="", repr=False)
    problem: str = ""
    """Text that follows the path of the file, such as `which does not exist`. Empty if there is no problem."""
    hint: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the content in UTF-8."""
        return hashlib.sha256(self.content.encode()).hexdigest()


class NodeStep(SpecModel):
    """Your own script, which runs on the nodes after the bootstrap steps."""

    name: Name = Field(examples=["tuning"])
    """Name of the step. The plan, the logs and the evidence of the nodes show it as `own-<name>`."""
    file: StepFile | None = Field(default=None, examples=["setup/tuning.sh"])
    """Script to run, relative to the folder of the stack file. The script is part of the bundle,
    so a change to its content replaces or updates nodes like any other change. If omitted, set `url`."""
    url: StepUrl | None = Field(default=None, examples=["https://example.com/tuning.sh"])
    """Script that each node downloads. It must not require credentials. If omitted, set `file`."""
    sha256: Sha256 | None = Field(
        default=None, examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
    )
    """SHA-256 of the script at `url`. A node does not run a script with a different checksum. Required if and only if `url` is set."""
    pools: tuple[Name, ...] = Field(default=(), max_length=50, examples=[["gpu"]])
    """Pools whose nodes run the step. If omitted, the nodes of all pools run it."""
    reboot: StrictBool = False
    """Whether the node reboots after the script exits with 0, before the next step and the checks."""
    timeout_minutes: Annotated[StrictInt, Unit("minutes")] = Field(default=30, ge=1, le=240, examples=[10])
    """Maximum duration of one run of the script. A script that takes longer is terminated, and the step fails."""
    retries: Annotated[StrictInt, Unit("retries")] = Field(default=0, ge=0, le=5, examples=[2])
    """Number of times that a failed script runs again before the step fails."""

    _script: Script | None = PrivateAttr(default=None)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            file: str | None = None,
            url: str | None = None,
            sha256: str | None = None,
            pools: tuple[str, ...] | list[str] = (),
            reboot: bool = False,
            timeout_minutes: int = 30,
            retries: int = 0,
        ) -> None: ...

    def model_post_init(self, context: Any) -> None:
        """Read the script. In a program, the path is relative to the current folder."""
        folder = context.get(FOLDER) if isinstance(context, dict) else None
        if self.file is not None:
            self._script = read_script(folder or Path(), self.file)

    @property
    def script(self) -> Script | None:
        """The script of `file`, or None if the step has no file."""
        return self._script


def read_script(folder: Path, file: str) -> Script:
    """Read a script below a folder. A script that cannot run on a node is returned with the problem instead of its content."""
    read = read_text(
        folder,
        file,
        limit=MAX_SCRIPT_BYTES,
        if_larger="let the script download its data, or use an image that contains the data",
        if_secret="let the script use the node's identity to read the key or token from a secret store; every user of a node can read the steps",
    )
    first = read.content.partition("\n")[0]
    if read.problem:
        return read
    if not first.startswith("#!/"):
        return Script(
            problem="whose first line does not name an interpreter",
            hint="begin the script with a line such as #!/bin/bash",
        )
    if first.endswith("\r"):
        return Script(problem="which has Windows line endings", hint="save the script with Unix line endings")
    return read


def read_text(folder: Path, file: str, *, limit: int, if_larger: str, if_secret: str) -> Script:
    """Read a text below a folder. A text that nodes cannot get is returned with the problem and the fix instead of its content."""
    try:
        path, inside = (folder / file).resolve(), folder.resolve()
        if not path.is_relative_to(inside):
            hint = "move the file into this folder or one of its subfolders"
            return Script(problem="which is outside the folder of the stack file", hint=hint)
        if not path.exists():
            what = "which does not exist in the folder of the stack file"
            return Script(problem=what, hint="create the file, or correct the path")
        if not path.is_file():
            what = "which is a folder" if path.is_dir() else "which is not a regular file"
            return Script(problem=what, hint="specify the path of one file")
        with path.open("rb") as stream:
            raw = stream.read(limit + 1)
    except (OSError, RuntimeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "the path is not valid"
        return Script(problem=f"which cannot be read: {reason}", hint="check the path and its permissions")
    if len(raw) > limit:
        return Script(problem=f"which is larger than {limit:,} bytes", hint=if_larger)
    try:
        content = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        return Script(problem=f"which contains invalid UTF-8 at byte {problem.start}", hint="save the file as UTF-8")
    if contains_key(content):
        return Script(problem="which contains a private key or an access token", hint=if_secret)
    return Script(content=content)

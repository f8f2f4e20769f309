"""Declared files and environment variables of the nodes.

As for `steps.py`, local files are read when the declaration is parsed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr

from gpuinfra.spec.base import Name, SpecModel
from gpuinfra.spec.formats import text
from gpuinfra.spec.steps import FOLDER, Script, StepFile, read_text

MAX_FILE_BYTES = 64 * 1024
"""Maximum size of a declared file."""
MAX_POOL_BYTES = 1024 * 1024
"""Maximum size of all declared files of a pool. Each node downloads them in its bundle."""
MAX_VARIABLES = 50
"""Maximum number of environment variables of a node."""
ACCOUNT = r"[a-z_][a-z0-9_-]{0,31}"
"""useradd(8) and groupadd(8), shadow 4.8.1: the names that Ubuntu accepts."""

FilePath = Annotated[
    str,
    text(
        r"^(/[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*|/\.[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*)+$",
        "an absolute path such as /etc/enroot/enroot.conf",
        max_length=200,
    ),
]
FileMode = Annotated[str, text(r"^0[0-7]{3}$", 'four octal digits in quotes, such as "0644"')]
Account = Annotated[
    str, text(rf"^{ACCOUNT}$", "the name of a user or group: lowercase letters, digits, - and _", max_length=32)
]
VariableName = Annotated[
    str,
    text(
        r"^[A-Za-z_][A-Za-z0-9_]*$", "a name of letters, digits and _ that does not begin with a digit", max_length=100
    ),
]
VariableValue = Annotated[
    str,
    text(r"^[^\x00-\x1f\x7f]{0,1000}$", "one line of at most 1,000 characters"),
]
Variables = Annotated[dict[VariableName, VariableValue], Field(max_length=MAX_VARIABLES)]


class NodeFile(SpecModel):
    """A small text file on the nodes."""

    path: FilePath = Field(examples=["/etc/enroot/enroot.conf.d/cache.conf"])
    """Absolute path on the node. Missing folders are created with mode 0755 and belong to root."""
    content: str | None = Field(
        default=None, max_length=MAX_FILE_BYTES, examples=["ENROOT_CACHE_PATH /mnt/nvme/enroot\n"]
    )
    """Content of the file. If omitted, set `file`."""
    file: StepFile | None = Field(default=None, examples=["setup/enroot.conf"])
    """Local file whose content is used, relative to the folder of the stack file. At most 64 KiB of text in UTF-8. If omitted, set `content`."""
    owner: Account = Field(default="root", examples=["alice"])
    """User that owns the file. The user must exist on the node when the file is written, such as a user in `access.users`."""
    group: Account | None = Field(default=None, examples=["adm"])
    """Group of the file. If omitted, the group with the same name as the owner."""
    mode: FileMode = Field(default="0644", examples=["0600"])
    """Permissions of the file."""
    pools: tuple[Name, ...] = Field(default=(), max_length=50, examples=[["gpu"]])
    """Pools whose nodes get the file. If omitted, the nodes of all pools get it."""

    _read: Script | None = PrivateAttr(default=None)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            path: str,
            content: str | None = None,
            file: str | None = None,
            owner: str = "root",
            group: str | None = None,
            mode: str = "0644",
            pools: tuple[str, ...] | list[str] = (),
        ) -> None: ...

    def model_post_init(self, context: Any) -> None:
        """Read the local file. In a program, the path is relative to the current folder."""
        folder = context.get(FOLDER) if isinstance(context, dict) else None
        if self.file is not None:
            self._read = read_text(
                folder or Path(),
                self.file,
                limit=MAX_FILE_BYTES,
                if_larger="download it with a script in software.steps, or use an image that contains it",
                if_secret="let a script in software.steps use the node's identity to read the key or token from a secret store; "
                "every user of a node can read the declared files",
            )

    @property
    def read(self) -> Script | None:
        """The content of the local file, or the reason why nodes cannot get it. None without `file`."""
        return self._read

    @property
    def text(self) -> str:
        """The content of the file on the node."""
        return self._read.content if self._read else self.content or ""

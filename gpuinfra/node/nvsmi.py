"""Parse the output of `nvidia-smi -q -x` by element name, with a parser that rejects XML attacks.

Each GPU becomes a mapping from a path such as `pci/pci_gpu_link_info/pcie_gen/max_link_gen` to its text.
Elements differ by driver and by MIG mode, so this module has no list of paths; each check decides what a missing path means.
`supported_clocks` is skipped: it is most of the text and no check reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from .outcome import Unreadable, shortened
from .table import label

_SKIPPED = frozenset(("supported_clocks", "accounted_processes"))
_PROCESS = "process_info"
"""An element with texts of users, which are not fields of the GPU."""
_REPEATED = frozenset((_PROCESS, "mig_device"))
"""Elements that a GPU has several of. Their number is part of the path: `mig_devices/mig_device[0]/index`."""
_MAX_DEPTH = 16
_MAX_ELEMENTS = 400_000


@dataclass(frozen=True)
class SmiGpu:
    """One `<gpu>` element."""

    index: int
    pci: str
    fields: dict[str, str]
    repeated: dict[str, int]
    """The count of each repeated element: `process_info`, `mig_device`."""

    def get(self, path: str) -> str:
        """Return the text at a path. Raises `Unreadable` if it was not printed."""
        if path not in self.fields:
            raise Unreadable("nvidia-smi -q -x printed no %s for GPU %d" % (path, self.index))
        return self.fields[path]

    def find(self, path: str, default: str = "N/A") -> str:
        """Return the text at a path that some drivers do not print, or None."""
        return self.fields.get(path, default)

    @property
    def label(self) -> str:
        """The GPU's index, address and serial number, for messages."""
        return label(self.index, self.pci, self.fields.get("serial", ""))


@dataclass(frozen=True)
class Log:
    """The parsed document."""

    driver_version: str
    attached_gpus: int
    gpus: tuple[SmiGpu, ...]


class _Reader:
    def __init__(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        self.top: dict[str, str] = {}
        self.gpus: list[SmiGpu] = []
        self._paths: list[str] = []
        """The paths of the open elements. Below a GPU, a path starts at the GPU."""
        self._in_process = 0
        self._text: list[str] = []
        self._fields: dict[str, str] | None = None
        self._repeated: dict[str, int] = {}
        self._pci = ""
        self._skip_depth = 0
        self._elements = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        paths = self._paths
        depth = len(paths)
        self._elements += 1
        if self._elements > _MAX_ELEMENTS or depth >= _MAX_DEPTH:
            raise Unreadable("nvidia-smi -q -x is too large or too deeply nested")
        if not depth and name != "nvidia_smi_log":
            raise Unreadable("the root element is <%s>, expected nvidia_smi_log" % shortened(name, 40))
        if name == "gpu" and depth == 1:
            self._fields, self._repeated, self._pci = {}, {}, attributes.get("id", "")
        if name in _SKIPPED:
            self._skip()
            return
        part = name
        if name in _REPEATED:
            number = self._repeated.get(name, 0)
            self._repeated[name] = number + 1
            part = "%s[%d]" % (name, number)
            self._in_process += name == _PROCESS
        paths.append(part if depth < 3 else paths[-1] + "/" + part)
        self._text = []

    def text(self, data: str) -> None:
        self._text.append(data)

    def end(self, name: str) -> None:
        path = self._paths.pop()
        self._in_process -= name == _PROCESS
        text = "".join(self._text).strip()
        self._text = []
        if self._fields is None:
            if len(self._paths) == 1:
                self.top[name] = text
        elif name == "gpu" and len(self._paths) == 1:
            self.gpus.append(SmiGpu(len(self.gpus), self._pci, self._fields, self._repeated))
            self._fields = None
        elif text and not self._in_process:
            if path in self._fields:
                raise Unreadable("nvidia-smi -q -x printed %s twice for one GPU" % path)
            self._fields[path] = text

    def _skip(self) -> None:
        """Track only the depth until the element ends. Most of the document is a list of clocks."""
        self._skip_depth = 1
        self._parser.StartElementHandler = self._deeper
        self._parser.EndElementHandler = self._shallower
        self._parser.CharacterDataHandler = None

    def _deeper(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._skip_depth += 1
        if self._elements > _MAX_ELEMENTS or self._skip_depth > _MAX_DEPTH:
            raise Unreadable("nvidia-smi -q -x is too large or too deeply nested")

    def _shallower(self, name: str) -> None:
        self._skip_depth -= 1
        if not self._skip_depth:
            self.listen()

    def listen(self) -> None:
        """Start or resume parsing elements."""
        self._parser.StartElementHandler = self.start
        self._parser.EndElementHandler = self.end
        self._parser.CharacterDataHandler = self.text

    def refuse(self, *_: Any) -> int:
        raise Unreadable("the XML declares entities, which nvidia-smi never does")


def parse(text: str) -> Log:
    """Parse the document. Raises `Unreadable` if it is incomplete or invalid."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    reader = _Reader(parser)
    reader.listen()
    # A DOCTYPE line is normal, and the DTD that it names is never fetched; declarations inside it are an attack.
    parser.EntityDeclHandler = reader.refuse
    parser.UnparsedEntityDeclHandler = reader.refuse
    parser.ExternalEntityRefHandler = reader.refuse
    parser.SkippedEntityHandler = reader.refuse
    try:
        parser.Parse(text.lstrip().encode("utf-8", "backslashreplace"), True)
    except expat.ExpatError as error:
        raise Unreadable("nvidia-smi -q -x printed invalid XML: %s" % error) from error
    attached = reader.top.get("attached_gpus", "")
    if not attached.isdigit():
        raise Unreadable("nvidia-smi -q -x reports no number of attached GPUs")
    if not reader.top.get("driver_version"):
        raise Unreadable("nvidia-smi -q -x reports no driver version")
    return Log(reader.top["driver_version"], int(attached), tuple(reader.gpus))

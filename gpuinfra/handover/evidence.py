"""Evidence and identity proofs from the store: the only place where the bytes of a node become values.

The bytes are decoded and bounded (`base/json_text.py`), and in every text, also in names of fields, control characters, bidirectional characters
and lone surrogates are written as escape sequences. Identifiers have a form; a value without this form is empty, because a state, a report or a
command line contains it. Callers verify the signer before they parse a document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuinfra.base.json_text import bounded
from gpuinfra.handover.ports import EVIDENCE_LIMIT, PROOF_LIMIT, REPORT_LIMIT
from gpuinfra.handover.text import host_keys
from gpuinfra.node.fabric_relay import REPORT
from gpuinfra.node.outcome import escaped, shortened

SCHEMA = "gpuinfra.evidence/1"
MAX_GPUS = 64
"""Maximum number of GPUs that a document can list. No machine has more."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORD = 64
"""Maximum length of an index, a serial number or an address of a GPU."""


class NotEvidence(ValueError):
    """The bytes are not evidence. The message gives the reason, without text of the document."""


class OtherFormat(NotEvidence):
    """The bytes are JSON with another schema."""


@dataclass(frozen=True)
class ParsedEvidence:
    """One document of evidence."""

    document: Mapping[str, object]
    """All fields. Their texts are safe to show."""

    @cached_property
    def instance_id(self) -> str:
        """The instance that the document names, or an empty string."""
        return _formed(self.document.get("instance_id"), _ID)

    @cached_property
    def boot_id(self) -> str:
        """The boot that the document names, or an empty string."""
        return _formed(self.document.get("boot_id"), _ID)

    @property
    def seq(self) -> int | None:
        """The number of the document, or None."""
        return _whole(self.document.get("seq"))

    @property
    def bundle_sha256(self) -> str:
        """The bundle that set the node up, or an empty string."""
        return _formed(self.document.get("bundle_sha256"), _SHA256)

    @property
    def previous(self) -> str:
        """The hash of the previous document of the node, or an empty string."""
        return _formed(self.document.get("previous"), _SHA256)

    @property
    def finished(self) -> str:
        """The time of the node at which its checks finished, or an empty string."""
        return _formed(self.document.get("finished"), _MOMENT)

    @property
    def probes(self) -> Mapping[str, object] | None:
        """The raw output of the probes, or None."""
        return _mapping(self.document.get("probes"))

    @property
    def journal(self) -> Mapping[str, object] | None:
        """The node's journal, or None."""
        return _mapping(self.document.get("state"))

    @property
    def host_keys(self) -> tuple[str, ...]:
        """The SSH host keys of the node."""
        return host_keys(self.document.get("ssh_host_keys"))

    def gpus(self, most: int) -> tuple[dict[str, str], ...]:
        """Return the GPUs that the node lists, each once, at most as many as its machine has. A UUID has the form that the driver prints."""
        listed = self.document.get("gpus")
        gpus_by_uuid: dict[str, dict[str, str]] = {}
        for gpu in listed if isinstance(listed, list) else ():
            if len(gpus_by_uuid) >= min(most, MAX_GPUS):
                break
            if isinstance(gpu, dict) and (uuid := _formed(gpu.get("uuid"), _UUID)):
                named = {name: shortened(str(gpu.get(name, "")), _WORD) for name in ("index", "serial", "pci")}
                gpus_by_uuid.setdefault(uuid, {**named, "uuid": uuid})
        return tuple(gpus_by_uuid.values())


def evidence_of(data: bytes, *, is_report: bool = False) -> ParsedEvidence:
    """Return a document of evidence, or a report to the fabric test, which has the same fields for its place. Raises `NotEvidence`."""
    limit, schema = (REPORT_LIMIT, REPORT) if is_report else (EVIDENCE_LIMIT, SCHEMA)
    try:
        document = bounded(data, limit, escaped)
    except ValueError as error:
        raise NotEvidence(str(error)) from None
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise OtherFormat(f"it does not have the schema {schema}")
    return ParsedEvidence(document)


def proof_of(data: bytes) -> dict[str, object]:
    """Return an identity proof. Raises `ValueError` with the reason."""
    proof = bounded(data, PROOF_LIMIT, escaped)
    if not isinstance(proof, dict):
        raise ValueError("it is not a JSON object")
    return proof


def _formed(value: object, form: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and form.fullmatch(value) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def _mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, dict) else None

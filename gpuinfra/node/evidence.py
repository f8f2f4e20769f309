"""Evidence: size-limited probe output that is chained by hash, stored on disk, and then uploaded with the node's
own identity.

Format `gpuinfra.evidence/1` of docs/reference/formats.md. Only the raw output is authoritative, because the operator's machine judges it again;
the outcomes in the evidence are only the node's own judgement.
"""

from __future__ import annotations

import glob
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Iterable, Mapping

from .answer import Answers
from .checks import ALL
from .checks.gpus import gpu_list
from .journal import write_whole
from .judge import judge
from .outcome import Broken, Unreadable, escaped

FOLDER = Path("/var/lib/gpuinfra/evidence")
MAX_BYTES = 4 * 1024 * 1024
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def needed_probes(expectation: Mapping[str, Any], phases: Iterable[str] | None = None) -> list[str]:
    """Return the names of the probes that the machine's checks read, without duplicates and in the order of the checks."""
    allowed = None if phases is None else set(phases)
    names: dict[str, None] = {}
    for check in ALL.values():
        if check.id in expectation.get("required", ()) and check.id not in expectation.get("skips", {}):
            if allowed is None or check.phase.value in allowed:
                names.update(dict.fromkeys(check.probes_for(expectation)))
    if allowed is None:
        if expectation.get("energy") is True:
            names["energy"] = None
        names["notices"] = None
        if expectation.get("repair"):
            names["repair"] = None
    return list(names)


def make(
    *,
    node: Mapping[str, Any],
    expectation: Mapping[str, Any],
    journal: Mapping[str, Any] | None,
    probes: Mapping[str, Any],
    instance_id: str,
    boot_id: str,
    seq: int,
    previous: str | None,
    started: str,
    finished: str,
    host_keys: list[str],
    phases: Iterable[str] | None = None,
    measured_in: int | None = None,
) -> dict[str, Any]:
    """Return one evidence document. `measured_in` is the number of the evidence document that contains the original output of the loading probes."""
    probes = bounded(probes)
    try:
        gpus = [{key: gpu[key] for key in ("index", "uuid", "serial", "pci")} for gpu in gpu_list(Answers(probes))]
    except (Broken, Unreadable):
        gpus = []
    bundle = node.get("bundle")
    return {
        "schema": "gpuinfra.evidence/1",
        "cloud": node.get("cloud"),
        "cluster": node.get("cluster"),
        "pool": node.get("pool"),
        "region": node.get("region"),
        "machine": expectation.get("machine"),
        "instance_id": instance_id,
        "boot_id": boot_id,
        "seq": seq,
        "measured_in": seq if measured_in is None else measured_in,
        "bundle_sha256": bundle.get("sha256") if isinstance(bundle, Mapping) else None,
        "started": started,
        "finished": finished,
        "probes": probes,
        "checks": judge(probes, expectation, journal=journal, phases=phases),
        "gpus": gpus,
        "ssh_host_keys": host_keys,
        "state": journal,
        "previous": previous,
    }


def bounded(probes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records, truncated to the size limit. A truncated record is marked, and no check passes with it."""
    left = MAX_BYTES - 512 * 1024  # space for the journal, the outcomes and JSON escapes
    kept = {}
    for name, record in probes.items():
        record = dict(record)
        for stream in ("stdout", "stderr"):
            size = len(json.dumps(record[stream]))
            if size > left:
                record[stream] = record[stream][: max(0, left // 8)]
                record["truncated"] = True
                size = len(json.dumps(record[stream]))
            left -= size
        kept[name] = record
    return kept


def dumped(document: Mapping[str, Any]) -> bytes:
    """Return the bytes that are hashed, signed and stored. The serialization is deterministic."""
    return json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def sha256(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def boot_id() -> str:
    """Return the kernel's ID of the current boot."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def ssh_host_keys(pattern: str = "/etc/ssh/ssh_host_*_key.pub") -> list[str]:
    """Return the public SSH host keys in known_hosts form: type and key, without the comment."""
    keys = []
    for path in sorted(glob.glob(pattern)):
        try:
            words = Path(path).read_text(encoding="ascii", errors="replace").split()
        except OSError:
            continue
        if len(words) >= 2 and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
            keys.append(escaped("%s %s" % (words[0], words[1]))[:4096])
    return keys


class EvidenceFolder:
    """The evidence on this node's disk: next number, hash of the previous document, newest document."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def newest(self) -> tuple[Path, dict[str, Any], bytes] | None:
        """Return the evidence with the highest number across all boots, or None."""
        paths = [path for path in sorted(self.folder.glob("*.json")) if path.stem.isdigit()]
        for path in reversed(paths):
            data = path.read_bytes()
            try:
                return path, json.loads(data), data
            except ValueError:  # an incomplete write before a power loss; its number is not reused
                continue
        return None

    def next_number(self) -> int:
        """Return the next number. Numbers increase over the instance's lifetime, so ordering does not depend on a clock."""
        return 1 + max([int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit()] or [0])

    def write(self, seq: int, data: bytes) -> Path:
        """Write the file. Call this before the upload, so that a retry uploads the same bytes."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / ("%06d.json" % seq)
        write_whole(path, data.decode("ascii"))
        return path

    def is_uploaded(self, seq: int) -> bool:
        """Return True if the evidence is known to be in the bucket."""
        return (self.folder / ("%06d.uploaded" % seq)).exists()

    def mark_uploaded(self, seq: int) -> None:
        """Record that this evidence is in the bucket."""
        (self.folder / ("%06d.uploaded" % seq)).touch()

    def proof_age_s(self, seq: int) -> float:
        """Return the time since the last proof of this evidence was stored, in seconds."""
        try:
            return time.time() - (self.folder / ("%06d.proven" % seq)).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def mark_proven(self, seq: int) -> None:
        """Record that a proof of this evidence is in the bucket."""
        (self.folder / ("%06d.proven" % seq)).touch()

    def prune(self, most: int = 50) -> None:
        """Delete all but the newest documents, so that hourly verification does not fill the disk."""
        for path in sorted(path for path in self.folder.glob("*.json") if path.stem.isdigit())[:-most]:
            path.unlink()
            path.with_suffix(".uploaded").unlink(missing_ok=True)
            path.with_suffix(".proven").unlink(missing_ok=True)


def key(prefix: str, instance_id: str, boot: str, seq: int, suffix: str = ".json") -> str:
    """Return the key of one document in the bucket."""
    return "%s/%s/%s/%06d%s" % (prefix.rstrip("/"), instance_id, boot, seq, suffix)

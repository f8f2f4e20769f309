"""Serves the evidence of a synthetic fleet as S3, Blob Storage or Cloud Storage do, and STS:
`python bench/handover_tools/evidence_server.py CLOUD NODES BOOTS FOLDER`.

The evidence of each boot is one document and one identity proof. The server makes each response when it is requested, so it holds no documents. It prints
its port. `GET /counts` returns the number of requests of each kind since the last call.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gpuinfra.clouds.aws.handover.ports import PROOF_BODY  # noqa: E402
from gpuinfra.handover.ports import folder_of  # noqa: E402
from gpuinfra.node import evidence  # noqa: E402
from gpuinfra.node.azure import nonces  # noqa: E402
from tests.clouds.azure import azure_authority  # noqa: E402
from tests.clouds.gcp import test_handover_identity as test_gcp_identity  # noqa: E402
from tests.node.healthy import JOURNAL, P4D, healthy  # noqa: E402

PREFIX = "evidence/train/"
OWNER, ROLE, BUNDLE = "AROA00000000000000001", "train-node", "b" * 64
NEWEST = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
PAGE = {"aws": 1000, "azure": 5000, "gcp": 1000}
"""Elements in a page of a list, as documented for each service."""
SIGNED = "content-type;host;x-amz-date;x-amz-security-token;x-gpuinfra-evidence"


def instance(cloud: str, number: int) -> str:
    """Return an instance ID in the format of the cloud."""
    if cloud == "aws":
        return f"i-{number:017x}"
    return f"0a0a0a0a-0000-4a00-8000-{number:012x}" if cloud == "azure" else str(10**18 + number)


def owner(cloud: str) -> str:
    """Return the writer that owns the folders, which exists only on AWS."""
    return OWNER if cloud == "aws" else ""


class Fleet:
    """The objects of the fleet, in the order of their keys."""

    def __init__(self, cloud: str, nodes: int, boots: int) -> None:
        self.cloud, self.boots = cloud, boots
        self.instances = {
            folder_of(owner(cloud), one): one for one in (instance(cloud, n) for n in range(1, nodes + 1))
        }
        document = evidence.make(
            node={"cloud": cloud, "bundle": {"sha256": BUNDLE}}, expectation=P4D, journal=JOURNAL, probes=healthy(), instance_id="@INSTANCE@",
            boot_id="@BOOT@", seq=1, previous=None, started="2026-11-21T09:00:00Z", finished="2026-11-21T09:10:00Z", host_keys=[],
        )  # fmt: skip
        self.template = evidence.dumped(document)

    def boot(self, age: int) -> str:
        """Return the ID of a boot. The IDs of newer boots are not always larger."""
        return f"{(age * 2654435761) % 2**32:08x}-0000-4000-8000-000000000000"

    def rows(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """Yield keys and times."""
        folder = prefix.removeprefix(PREFIX).partition("/")[0]
        ages = sorted(range(self.boots), key=self.boot)
        for one in [folder] if folder in self.instances else sorted(self.instances):
            for age in ages:
                for suffix in (".json", ".proof.json"):
                    yield f"{PREFIX}{one}/{self.boot(age)}/000001{suffix}", NEWEST - timedelta(hours=age)

    def content(self, key: str) -> bytes:
        """Return a document or a proof."""
        folder, boot, name = key.removeprefix(PREFIX).split("/")
        own = self.instances[folder]
        data = self.template.replace(b"@INSTANCE@", own.encode()).replace(b"@BOOT@", boot.encode())
        return data if name == "000001.json" else json.dumps(self.proof(own, hashlib.sha256(data).hexdigest())).encode()

    def proof(self, own: str, sha256: str) -> dict[str, Any]:
        """Return an identity proof."""
        proof: dict[str, Any] = {"schema": "gpuinfra.proof/1", "cloud": self.cloud, "evidence_sha256": sha256}
        if self.cloud == "aws":
            headers = {
                "authorization": f"AWS4-HMAC-SHA256 Credential=ASIA/x, SignedHeaders={SIGNED}, Signature=00", "host": self.host,
                "x-amz-date": "20261121T090000Z", "x-amz-security-token": own, "x-gpuinfra-evidence": sha256,
                "content-type": "application/x-www-form-urlencoded; charset=utf-8",
            }  # fmt: skip
            return {**proof, "request": {"method": "POST", "path": "/", "query": "", "headers": headers, "body": PROOF_BODY}}  # fmt: skip
        if self.cloud == "azure":
            sign = azure_authority.authority().document
            return {**proof, "documents": [sign(nonce, vmId=own) for nonce in nonces(sha256)]}
        engine = {"instance_id": own, "project_id": "standin-project", "zone": "us-central1-a"}
        claims = test_gcp_identity.claims(aud=f"gpuinfra:evidence:{sha256}", google={"compute_engine": engine})
        return {**proof, "token": test_gcp_identity.token(claims)}

    host = ""

    def listed(self, prefix: str, after: str, folders: bool) -> tuple[list[tuple[str, datetime]], list[str], str]:
        """Return objects, folders and the marker of the next page."""
        if folders:
            names = [one for one in (f"{PREFIX}{one}/" for one in sorted(self.instances)) if one > after]
            most = PAGE[self.cloud]
            return [], names[:most], names[most - 1] if len(names) > most else ""
        if prefix == PREFIX and after:
            # The rows of earlier folders are skipped without making them.
            before = after.removeprefix(PREFIX).partition("/")[0]
            rest = (row for one in sorted(self.instances) if one >= before for row in self.rows(f"{PREFIX}{one}/"))
        else:
            rest = self.rows(prefix)
        found: list[tuple[str, datetime]] = []
        for row in rest:
            if row[0] <= after:
                continue
            if len(found) == PAGE[self.cloud]:
                return found, [], found[-1][0]
            found.append(row)
        return found, [], ""


def s3(rows: list[tuple[str, datetime]], folders: list[str], marker: str) -> bytes:
    """Return a page as ListObjectsV2 does."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>{at:%Y-%m-%dT%H:%M:%S.000Z}</LastModified><ETag>&quot;{hash(key) & 2**64 - 1:032x}&quot;</ETag>"
        "<Size>200000</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, at in rows
    )
    prefixes = "".join(f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in folders)
    tail = f"<NextContinuationToken>{marker}</NextContinuationToken>" if marker else ""
    return (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{'true' if marker else 'false'}</IsTruncated>{tail}{contents}{prefixes}</ListBucketResult>"
    ).encode()


def blobs(rows: list[tuple[str, datetime]], folders: list[str], marker: str) -> bytes:
    """Return a page as List Blobs does."""
    contents = "".join(
        f"<Blob><Name>{key}</Name><Properties><Last-Modified>{format_datetime(at, usegmt=True)}</Last-Modified><Etag>0x{hash(key) & 2**60 - 1:015X}</Etag>"
        "<Content-Length>200000</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
        for key, at in rows
    )
    prefixes = "".join(f"<BlobPrefix><Name>{one}</Name></BlobPrefix>" for one in folders)
    return f"<EnumerationResults><Blobs>{contents}{prefixes}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>".encode()


def cloud_storage(rows: list[tuple[str, datetime]], folders: list[str], marker: str) -> bytes:
    """Return a page as objects.list does."""
    items = [{"name": key, "generation": str(hash(key) & 2**50 - 1), "updated": f"{at:%Y-%m-%dT%H:%M:%S.000Z}"} for key, at in rows]  # fmt: skip
    return json.dumps({"items": items, "prefixes": folders, **({"nextPageToken": marker} if marker else {})}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the three services."""

    protocol_version = "HTTP/1.1"
    fleet: Fleet
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key = unquote(parts.path).partition(PREFIX)[2]
        if parts.path == "/counts":
            with self.lock:
                body = json.dumps(self.counts).encode()
                self.counts.clear()
            return self._answer(body)
        if "prefix" in query:
            folders = "delimiter" in query
            self._count("folders" if folders else "list")
            after = query.get("continuation-token") or query.get("marker") or query.get("pageToken") or ""
            form = {"aws": s3, "azure": blobs, "gcp": cloud_storage}[self.fleet.cloud]
            return self._answer(form(*self.fleet.listed(query["prefix"], after, folders)))
        self._count("proof" if key.endswith(".proof.json") else "read")
        return self._answer(self.fleet.content(PREFIX + key))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._count("identity")
        own = self.headers["x-amz-security-token"]
        arn = f"arn:aws:sts::000000000000:assumed-role/{ROLE}/{own}"
        self._answer(
            f'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>{arn}</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>'.encode()
        )

    def _count(self, kind: str) -> None:
        with self.lock:
            self.counts[kind] += 1

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


def main() -> None:
    """Serve until the input ends."""
    cloud, nodes, boots, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    if cloud == "azure":
        azure_authority.authority().pem(folder)
    if cloud == "gcp":
        (folder / "keys.json").write_text(json.dumps(test_gcp_identity.jwks(("one", test_gcp_identity.KEY))))
    Handler.fleet = Fleet(cloud, nodes, boots)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.fleet.host = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

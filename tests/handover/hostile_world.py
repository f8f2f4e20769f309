"""Three clouds in memory, with honest and hostile nodes. The stores, the formats of names and the verification of signatures are the real ones.

A hostile node can create any object that the access rules of its cloud allow: on AWS below its own name, on Azure and Google Cloud below the prefix of
the cluster. It cannot replace an object of another node.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

import jwt

from gpuinfra.clouds.aws.handover import ports as aws
from gpuinfra.clouds.azure.handover import ports as azure
from gpuinfra.clouds.azure.handover.attested import Trust, nonces
from gpuinfra.clouds.azure.rest import RestAnswer
from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.clouds.gcp.handover.identity import GoogleIdentity
from gpuinfra.handover.ports import (
    GroupExpected,
    Identity,
    IdentityExpired,
    IdentityRefused,
    IdentityService,
    IdentityUndecided,
    Member,
    PoolExpected,
    Ports,
    folder_of,
)
from tests.clouds.azure.azure_authority import NOW as AZURE_NOW
from tests.clouds.azure.azure_authority import SUBSCRIPTION, authority
from tests.clouds.gcp.handover import test_identity as google

from .fleet import BUNDLE, LAUNCHED, OWNER, ROLE, gpu_uuid

PREFIX = "evidence/train"
BOOTS = ("11111111-aaaa", "22222222-bbbb")
CLOUDS = ("aws", "azure", "gcp")


def id_of(cloud: str, number: int) -> str:
    """The ID of an instance."""
    return {
        "aws": f"i-{number:017x}",
        "azure": f"0a0a0a0a-0000-4a00-8000-{number:012x}",
        "gcp": str(10**18 + number),
    }[cloud]


@cache
def signed(cloud: str, signer: str, sha256: str, expired: bool = False) -> bytes:
    """The proof of an instance for a hash."""
    proof: dict[str, Any] = {"schema": "gpuinfra.proof/1", "cloud": cloud, "evidence_sha256": sha256}
    if cloud == "gcp":
        engine = {"instance_id": signer, "project_id": "standin-project"}
        late = {"exp": google.NOW - 3600} if expired else {}
        claims = google.claims(aud=f"gpuinfra:evidence:{sha256}", google={"compute_engine": engine}, **late)
        proof["token"] = jwt.encode(claims, google.KEY, algorithm="RS256", headers={"kid": "one"})
    elif cloud == "azure":
        late = AZURE_NOW - timedelta(hours=1) if expired else AZURE_NOW + timedelta(hours=6)
        stamp = {"createdOn": "", "expiresOn": late.strftime("%m/%d/%y %H:%M:%S -0000")}
        made = (authority().document(nonce, vmId=signer, timeStamp=stamp) for nonce in nonces(sha256))
        proof["documents"] = list(made)
    else:
        names = "content-type;host;x-amz-date;x-amz-security-token;x-gpuinfra-evidence"
        signature = _aws_signature(signer, sha256)
        proof["request"] = {
            "method": "POST", "path": "/", "query": "", "body": aws.PROOF_BODY,
            "headers": {
                "Authorization": f"AWS4-HMAC-SHA256 Credential=ASIA/x, SignedHeaders={names}, Signature={signature}", "Host": "sts.example",
                "X-Amz-Date": "20261121T090000Z", "X-Amz-Security-Token": "expired" if expired else f"token-{signer}",
                "X-Gpuinfra-Evidence": sha256, "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
            },
        }  # fmt: skip
    return json.dumps(proof).encode()


def _aws_signature(signer: str, sha256: str) -> str:
    return hashlib.sha256(f"secret of {signer} {sha256}".encode()).hexdigest()


class Sts(aws.StsIdentity):
    """STS, which knows the secret of each instance."""

    def __init__(self) -> None:
        meta = type("Meta", (), {"endpoint_url": "https://sts.example"})
        super().__init__(type("Client", (), {"meta": meta}))
        self._account = "0" * 12

    def _send(self, headers: dict[str, str]) -> bytes:
        token = headers.get("x-amz-security-token", "")
        if token == "expired":
            raise aws.IdentityExpired("the node's identity proof is too old (ExpiredToken)")
        signer = token.removeprefix("token-")
        if not headers["authorization"].endswith(_aws_signature(signer, headers["x-gpuinfra-evidence"])):
            raise IdentityRefused("STS refused the node's identity proof: SignatureDoesNotMatch")
        names = "https://sts.amazonaws.com/doc/2011-06-15/"
        arn = f"<Arn>arn:aws:sts::{'0' * 12}:assumed-role/{ROLE}/{escape(signer)}</Arn>"
        result = f"<GetCallerIdentityResult>{arn}</GetCallerIdentityResult>"
        return f'<GetCallerIdentityResponse xmlns="{names}">{result}</GetCallerIdentityResponse>'.encode()


@cache
def _trust() -> Trust:
    with tempfile.TemporaryDirectory() as folder:
        trust = Trust(authority().pem(Path(folder)))
        trust._certificates()
        return trust


class Remembering:
    """An identity service that verifies each proof once, because most cases contain the same proofs, and Azure's take 5 ms."""

    def __init__(self, service: IdentityService) -> None:
        self._service = service
        self._results: dict[bytes, Identity | Exception] = {}

    def verify(self, proof: dict[str, object]) -> Identity:
        """Return or raise what the service returns or raises for this proof."""
        key = hashlib.sha256(json.dumps(proof, sort_keys=True).encode()).digest()
        if key not in self._results:
            try:
                self._results[key] = self._service.verify(proof)
            except (IdentityRefused, IdentityExpired, IdentityUndecided) as error:
                self._results[key] = error
        result = self._results[key]
        if isinstance(result, Exception):
            raise type(result)(str(result))
        return result


@cache
def identity_of(cloud: str) -> Remembering:
    """The real verification of signatures of a cloud."""
    if cloud == "aws":
        return Remembering(Sts())
    if cloud == "gcp":
        keys = google.jwks(("one", google.KEY))
        return Remembering(GoogleIdentity(lambda: keys, lambda: {"standin-project"}, clock=lambda: google.NOW))
    return Remembering(azure.AttestedIdentity(_trust(), lambda: {SUBSCRIPTION}, clock=lambda: AZURE_NOW))


@dataclass
class World:
    """One bucket or container, and the nodes of one pool."""

    cloud: str
    nodes: int
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    now: datetime = LAUNCHED + timedelta(minutes=5)
    own: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Honest node -> name and hash of its newest evidence."""

    @property
    def owner(self) -> str:
        """The owner of the folders. Only AWS has owners."""
        return OWNER if self.cloud == "aws" else ""

    @property
    def pool(self) -> PoolExpected:
        """The declared pool."""
        return PoolExpected(
            cloud=self.cloud, name="gpu", machine="machine", groups=(GroupExpected(name="gpu-0", group="group", count=self.nodes),),
            expectation={"gpus": 8, "required": ["G1"], "skips": {}}, bundle_sha256=BUNDLE, evidence_owner=self.owner,
        )  # fmt: skip

    def write(self, key: str, data: bytes, *, replaces: bool = False) -> None:
        """Create an object, a second later. An existing object stays unless its writer can replace it."""
        self.now += timedelta(seconds=1)
        if replaces or key not in self.objects:
            self.objects[key] = data, self.now

    def folder(self, number: int) -> str:
        """The folder of a node."""
        return f"{PREFIX}/{folder_of(self.owner, id_of(self.cloud, number))}"

    def report(self, number: int, boot: str, seq: int, gpus: int) -> None:
        """An honest node writes evidence and its proof, as `gpuinfra/node/upload.py` does: it skips numbers that are in use."""
        while f"{self.folder(number)}/{boot}/{seq:06d}.json" in self.objects:
            seq += 1
        data = document(self.cloud, number, boot, seq, gpus)
        self.own[number] = f"{self.folder(number)}/{boot}/{seq:06d}", hashlib.sha256(data).hexdigest()
        self.write(f"{self.own[number][0]}.json", data)
        self.renew(number)

    def renew(self, number: int) -> None:
        """An honest node signs its newest evidence again."""
        base, sha256 = self.own[number]
        end = ".proof.json" if self.owner else f".{len(self.objects):08x}.proof.json"
        self.write(base + end, signed(self.cloud, id_of(self.cloud, number), sha256), replaces=bool(self.owner))

    @property
    def ports(self) -> Ports:
        """The real stores and identity services, over this world."""
        return Ports(membership=self, store=self._store(), identity=identity_of(self.cloud), console=self)  # type: ignore[arg-type]

    def members(self, groups: object) -> list[Member]:
        return [
            Member(instance_id=id_of(self.cloud, at), group="group", launched=LAUNCHED)
            for at in range(1, self.nodes + 1)
        ]

    def tail(self, instance_id: str, lines: int) -> list[str]:
        return []

    def publish(self, key: str, data: bytes) -> None:
        """The operator writes an object."""
        self.write(key, data, replaces=True)

    def _store(self) -> Any:
        if self.cloud == "aws":
            return aws.S3Evidence(_S3(self), "bucket", PREFIX)
        if self.cloud == "gcp":
            return gcp.StorageEvidence(_Google(self), "https://storage.example", "bucket", PREFIX)
        return azure.BlobEvidence(_Azure(self), "https://account.blob.core.windows.net/evidence", PREFIX)  # type: ignore[arg-type]

    def listed(self, prefix: str, delimiter: str) -> tuple[list[str], list[str]]:
        """The folders and the objects below a prefix, in the order of their names."""
        names = sorted(key for key in self.objects if key.startswith(prefix))
        if not delimiter:
            return [], names
        return sorted(
            {prefix + name[len(prefix) :].partition("/")[0] + "/" for name in names if "/" in name[len(prefix) :]}
        ), []

    def etag(self, key: str) -> str:
        """The version of an object."""
        return hashlib.sha256(self.objects[key][0]).hexdigest()[:16]


def document(cloud: str, number: int, boot: str, seq: int, gpus: int, **more: object) -> bytes:
    """Evidence of a node."""
    content: dict[str, object] = {
        "schema": "gpuinfra.evidence/1", "instance_id": id_of(cloud, number), "boot_id": boot, "seq": seq, "bundle_sha256": BUNDLE,
        "probes": {"gpus": gpus}, "gpus": [{"index": at, "uuid": gpu_uuid(number, at)} for at in range(gpus)],
        "state": {"steps": [{"id": "10-prepare", "status": "done"}]}, **more,
    }  # fmt: skip
    return json.dumps(content).encode()


class _S3:
    def __init__(self, world: World) -> None:
        self._world = world

    def get_paginator(self, name: str) -> Any:
        return self

    def paginate(self, Prefix: str, Delimiter: str = "", **more: str) -> Iterator[dict[str, Any]]:
        folders, names = self._world.listed(Prefix, Delimiter)
        entries = [
            {"Key": one, "ETag": self._world.etag(one), "LastModified": self._world.objects[one][1]} for one in names
        ]
        yield {"CommonPrefixes": [{"Prefix": one} for one in folders], "Contents": entries}

    def put_object(self, Bucket: str, Key: str, Body: bytes, ContentType: str) -> None:
        self._world.publish(Key, Body)

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        data = self._world.objects[Key][0]
        return {"Body": type("Body", (), {"read": lambda self, limit: data[:limit]})()}


class _Google(gcp.Client):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def json(
        self, method: str, url: str, parameters: Mapping[str, str] | None = None, body: object = None
    ) -> dict[str, Any]:
        given = parameters or {}
        if method == "POST":
            assert url == "https://storage.example/upload/storage/v1/b/bucket/o"
            self._world.publish(given["name"], json.dumps(body).encode())
            return {}
        folders, names = self._world.listed(given["prefix"], given.get("delimiter", ""))
        items = [
            {"name": one, "generation": self._world.etag(one), "updated": self._world.objects[one][1].isoformat()}
            for one in names
        ]
        return {"prefixes": folders, "items": items}

    def content(self, url: str, limit: int) -> bytes | None:
        found = self._world.objects.get(unquote(url.rpartition("/o/")[2]))
        return None if found is None else found[0][:limit]


class _Azure:
    def __init__(self, world: World) -> None:
        self._world = world

    def blob_base(self, container: str) -> str:
        return container

    def blob(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> RestAnswer:
        path, _, query = url.partition("?")
        if method == "PUT":
            self._world.publish(unquote(path.partition("/evidence/")[2]), body or b"")
            return RestAnswer(status=201, headers={}, body=b"")
        if not query:
            found = self._world.objects.get(unquote(path.partition("/evidence/")[2]))
            return RestAnswer(status=404 if found is None else 200, headers={}, body=b"" if found is None else found[0])
        given = dict(one.split("=", 1) for one in query.split("&"))
        folders, names = self._world.listed(unquote(given["prefix"].replace("+", " ")), given.get("delimiter", ""))
        text = "".join(f"<BlobPrefix><Name>{escape(one)}</Name></BlobPrefix>" for one in folders)
        for one in names:
            at = self._world.objects[one][1].strftime("%a, %d %b %Y %H:%M:%S GMT")
            text += f"<Blob><Name>{escape(one)}</Name><Properties><Etag>{self._world.etag(one)}</Etag><Last-Modified>{at}</Last-Modified></Properties></Blob>"
        return RestAnswer(
            status=200, headers={}, body=f"<EnumerationResults><Blobs>{text}</Blobs></EnumerationResults>".encode()
        )

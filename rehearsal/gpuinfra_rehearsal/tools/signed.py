"""The requests of Mountpoint for Amazon S3 (a bucket listing), of Prometheus (the instances of a cluster) and of CloudWatch Agent (log events), signed with the
credentials of the node's role.

The signature follows the documented steps of Signature Version 4 (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).
The stand-in cloud verifies it with botocore.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener
from xml.sax.saxutils import unescape

from .state import read_state

_QUERY = "list-type=2&max-keys=0&prefix="


def list_bucket(bucket: str, environ: dict[str, str]) -> None:
    """Request a list of at most zero objects, as Mountpoint does when it mounts a bucket. Raises HTTPError with S3's status and message."""
    _send("s3", "GET", f"/{quote(bucket, safe='-_.~')}", "&".join(sorted(_QUERY.split("&"))), b"", environ)


def bucket_objects(bucket: str, environ: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of the first 1,000 objects of a bucket, as a program reads them through Mountpoint. Raises HTTPError."""
    root = f"/{quote(bucket, safe='-_.~')}"
    listing = _send("s3", "GET", root, "list-type=2&prefix=", b"", environ)
    for key in re.findall(r"<Contents><Key>(.*?)</Key>", listing.decode()):
        name = unescape(key)
        yield name, _send("s3", "GET", f"{root}/{quote(name, safe='/-_.~')}", "", b"", environ)


def describe_instances(filters: Iterable[tuple[str, list[str]]], environ: dict[str, str]) -> str:
    """Return the XML with the instances that Prometheus finds with these filters. Raises HTTPError with EC2's status and message."""
    asked = {"Action": "DescribeInstances", "Version": "2016-11-15"}
    for number, (name, values) in enumerate(filters, 1):
        asked[f"Filter.{number}.Name"] = name
        asked.update({f"Filter.{number}.Value.{place}": value for place, value in enumerate(values, 1)})
    return _send("ec2", "POST", "/", "", urlencode(asked).encode(), environ).decode()


def logs(action: str, asked: dict[str, object], environ: dict[str, str]) -> str:
    """Send a request to CloudWatch Logs. Raises HTTPError with its status and message."""
    return _send("logs", "POST", "/", "", json.dumps(asked).encode(), environ, f"Logs_20140328.{action}").decode()


def role_keys(environ: dict[str, str]) -> dict[str, str]:
    """Return the variables with the credentials of the node's role, for a program whose SDK does not use a path in the address of the metadata
    service, such as that of Debian's Alertmanager 0.25."""
    key = _credentials(environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"].rstrip("/"))
    return {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "AWS_SESSION_TOKEN": key["Token"],
    }


def _send(
    service: str, method: str, path: str, query: str, body: bytes, environ: dict[str, str], target: str = ""
) -> bytes:
    key = _credentials(environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"].rstrip("/"))
    region = read_state()["instance"]["region"]
    endpoint = urlsplit(environ["AWS_ENDPOINT_URL"])
    path = f"{endpoint.path}{path}"
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    payload = hashlib.sha256(body).hexdigest()
    headers = {
        "host": endpoint.netloc,
        "x-amz-content-sha256": payload,
        "x-amz-date": moment,
        "x-amz-security-token": key["Token"],
        **({"x-amz-target": target} if target else {}),
    }
    signed = ";".join(headers)
    fields = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join((method, path, query, fields, signed, payload))
    message = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    derived = f"AWS4{key['SecretAccessKey']}".encode()
    for word in scope.split("/"):
        derived = hmac.digest(derived, word.encode(), "sha256")
    signature = hmac.digest(derived, message.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key['AccessKeyId']}/{scope}, SignedHeaders={signed}, Signature={signature}"
    )
    url = f"{endpoint.scheme}://{endpoint.netloc}{path}" + (f"?{query}" if query else "")
    return _open(Request(url, data=body or None, method=method, headers=headers))


def _credentials(metadata: str) -> dict[str, str]:
    token = _open(
        Request(f"{metadata}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    ).decode()
    session = {"X-aws-ec2-metadata-token": token}
    folder = f"{metadata}/latest/meta-data/iam/security-credentials/"
    role = _open(Request(folder, headers=session)).decode().split()[0]
    return json.loads(_open(Request(folder + role, headers=session)))


def _open(request: Request) -> bytes:
    with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
        content: bytes = answer.read()
        return content

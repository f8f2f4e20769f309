"""Fetch the bundle from S3 with the node's own role. Arguments: bucket, key, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of user data, so it is short and uses Python's standard library only.
curl can sign too, but the curl of Ubuntu 22.04 signs S3 requests incorrectly.
"""

import hashlib
import hmac
import os
import time
import urllib.parse
import urllib.request

from fetch import Trouble, ask, clock, fields, run

METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
FOLDER = "/latest/meta-data/iam/security-credentials/"


def metadata(what, path, method="GET", **headers):
    """One answer of the metadata service."""
    who = "the metadata service, asked for " + what
    return ask(who, urllib.request.Request(METADATA + path, method=method, headers=headers), direct=True)


def credentials():
    """The role's access key, secret key and token, from IMDSv2."""
    token = metadata("a token", "/latest/api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "300"}).decode()
    header = {"X-aws-ec2-metadata-token": token}
    roles = metadata("this machine's role", FOLDER, **header).decode().split()
    if not roles:
        raise Trouble("the metadata service lists no role of this machine")
    body = metadata("credentials", FOLDER + roles[0], **header)
    return fields("the metadata service, asked for credentials", body, "AccessKeyId", "SecretAccessKey", "Token")


def location(bucket, key, region):
    """Endpoint and path, from the SDKs' own variables; a bucket name with dots does not match the wildcard certificate."""
    path = urllib.parse.quote(key, safe="/-_.~")
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/"), "/" + bucket + "/" + path
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    if "." in bucket:
        return f"https://s3.{region}.{domain}", "/" + bucket + "/" + path
    return f"https://{bucket}.s3.{region}.{domain}", "/" + path


def request(bucket, key, region):
    """A GET request for the object, signed with Signature Version 4 and the cloud's time."""
    access_key, secret_key, token = credentials()
    base, path = location(bucket, key, region)
    url = urllib.parse.urlsplit(base)
    path = url.path + path
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + clock["offset_s"]))
    day = stamp[:8]
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": url.netloc, "x-amz-content-sha256": empty, "x-amz-date": stamp, "x-amz-security-token": token}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join(["GET", path, "", lines, names, empty])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ("AWS4" + secret_key).encode()
    for part in (day, region, "s3", "aws4_request"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    proof = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={proof}"
    )
    return urllib.request.Request(url.scheme + "://" + url.netloc + path, headers=headers)


# A new role reaches S3 after some seconds, and a new NAT gateway works after some minutes.
if __name__ == "__main__":
    run("S3", lambda bucket, key, _: f"s3://{bucket}/{key}", request)

"""Fetch the bundle from S3 with the node's own role. Arguments: bucket, key, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of user data, so it is short and uses Python's standard library only.
curl can sign too, but the curl of Ubuntu 22.04 signs S3 requests incorrectly.
"""

import email.utils
import hashlib
import hmac
import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

PATIENCE_S = 900
MAX_BYTES = 64 * 1024 * 1024
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def metadata(path, method="GET", **headers):
    """One answer of the metadata service, without a proxy."""
    request = urllib.request.Request(METADATA + path, method=method, headers=headers)
    return DIRECT.open(request, timeout=5).read().decode()


def credentials():
    """The role's credentials, from IMDSv2."""
    token = metadata("/latest/api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    folder = "/latest/meta-data/iam/security-credentials/"
    role = metadata(folder, **{"X-aws-ec2-metadata-token": token}).split()[0]
    return json.loads(metadata(folder + role, **{"X-aws-ec2-metadata-token": token}))


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


def signed(bucket, key, region, offset_s):
    """A GET request for the object, signed with Signature Version 4."""
    who = credentials()
    base, path = location(bucket, key, region)
    url = urllib.parse.urlsplit(base)
    path = url.path + path
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + offset_s))
    day = stamp[:8]
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": url.netloc, "x-amz-content-sha256": empty, "x-amz-date": stamp}
    headers["x-amz-security-token"] = who["Token"]
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join(["GET", path, "", lines, names, empty])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ("AWS4" + who["SecretAccessKey"]).encode()
    for part in (day, region, "s3", "aws4_request"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    proof = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={who['AccessKeyId']}/{scope}, SignedHeaders={names}, Signature={proof}"
    )
    return urllib.request.Request(url.scheme + "://" + url.netloc + path, headers=headers)


def main():
    """Retry until the bundle is complete."""
    bucket, key, region, sha256, target = sys.argv[1:]
    until, pause, offset_s = time.monotonic() + PATIENCE_S, 1, 0.0
    while True:
        try:
            with urllib.request.urlopen(signed(bucket, key, region, offset_s), timeout=60) as answer:
                data = zlib.decompressobj(31).decompress(answer.read(), MAX_BYTES)
            found = hashlib.sha256(data).hexdigest()
            if found == sha256:
                break
            why = f"its SHA-256 is {found}, not {sha256}"
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode("utf-8", "replace")
            why = f"HTTP {error.code} {text.partition('<Code>')[2].partition('</Code>')[0]}"
            if "RequestTimeTooSkewed" in text and error.headers.get("Date"):
                offset_s = email.utils.parsedate_to_datetime(error.headers["Date"]).timestamp() - time.time()
                why += f": this machine's clock is off by {-offset_s:.0f} s"
        except (OSError, ValueError, zlib.error, KeyError, IndexError) as error:
            why = str(error)
        # A new role reaches S3 after some seconds, and a new NAT gateway works after some minutes.
        if time.monotonic() + pause > until:
            sys.exit(f"s3://{bucket}/{key} cannot be fetched: {why}")
        print(f"s3://{bucket}/{key}: {why}; retrying in {pause} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(pause * 2, 30)
    with pathlib.Path(target).open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


main()

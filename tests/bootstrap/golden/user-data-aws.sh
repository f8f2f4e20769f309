#!/bin/bash
# Made by gpuinfra: fetches this node's bundle, verifies it, and starts its units without waiting for them.
# cloud-init runs it once, at first boot. It contains no secret: the node fetches the bundle with its own role.
set -euo pipefail
umask 022
readonly HOME_OF_BUNDLES=/opt/gpuinfra
readonly STARTED=/run/gpuinfra-started.json

main() {
  trap 'log "user data failed in line $LINENO; this node will not report"' ERR
  local sha256 archive
  mkdir -p /etc/gpuinfra "$HOME_OF_BUNDLES" /var/lib/gpuinfra
  node_json >/etc/gpuinfra/node.json.new
  # A cloud that applies a new bundle to running nodes with this script also runs it next to cloud-init at first boot.
  if cmp -s /etc/gpuinfra/node.json.new "$STARTED"; then
    rm -f /etc/gpuinfra/node.json.new
    log "this configuration was already started in this boot"
    return
  fi
  mv -f /etc/gpuinfra/node.json.new /etc/gpuinfra/node.json
  sha256=$(of_bundle sha256)
  if [[ ! -d $HOME_OF_BUNDLES/$sha256 ]]; then
    log "fetching the bundle $sha256"
    archive=$HOME_OF_BUNDLES/.$sha256.tar
    fetch "$(of_bundle bucket)" "$(of_bundle key)" "$(of_bundle region)" "$sha256" "$archive"
    unpack "$archive" "$HOME_OF_BUNDLES/$sha256"
  fi
  ln -sfn "$HOME_OF_BUNDLES/$sha256" "$HOME_OF_BUNDLES/.current"
  mv -fT "$HOME_OF_BUNDLES/.current" "$HOME_OF_BUNDLES/current"
  start_units
  cp -f /etc/gpuinfra/node.json "$STARTED"
  log "the bundle is installed; gpuinfra-bootstrap.service continues"
}

log() {
  echo "gpuinfra: $*"
  { echo "gpuinfra: $*" >/dev/console; } 2>/dev/null || true
}

of_bundle() {
  python3 -c 'import json, sys
node = json.load(open("/etc/gpuinfra/node.json"))
print({"region": node["region"], **node["bundle"]}[sys.argv[1]])' "$1"
}

# Atomic: a kill in the middle leaves only a temporary folder.
unpack() {
  local archive=$1 target=$2 draft
  draft=$(mktemp -d "$HOME_OF_BUNDLES/.new-XXXXXX")
  tar -xf "$archive" -C "$draft" --no-same-owner
  chmod 755 "$draft"
  sync
  mv -T "$draft" "$target"
  rm -f "$archive"
}

start_units() {
  local units
  cp -f "$HOME_OF_BUNDLES"/current/units/gpuinfra-* /etc/systemd/system/
  units=$(cd "$HOME_OF_BUNDLES/current/units" && grep -l '^\[Install\]' gpuinfra-*)
  systemctl daemon-reload
  # shellcheck disable=SC2086  # one word per unit
  systemctl enable $units
  # shellcheck disable=SC2086
  systemctl start --no-block $units
}

node_json() {
  cat <<'END_OF_NODE_JSON'
{
 "bundle": {
  "bucket": "train-evidence",
  "key": "bootstrap/5555555555555555555555555555555555555555555555555555555555555555.tar.gz",
  "sha256": "5555555555555555555555555555555555555555555555555555555555555555"
 },
 "cloud": "aws",
 "cluster": "train",
 "evidence": {
  "bucket": "train-evidence",
  "owner": "AROA00000000000000001",
  "prefix": "evidence/train"
 },
 "file_systems": [
  {
   "dns_name": "fs-1.fsx.us-east-1.amazonaws.com",
   "kind": "lustre",
   "mount": "/scratch",
   "mount_name": "abc"
  }
 ],
 "pool": "gpu",
 "region": "us-east-1",
 "schema": "gpuinfra.node/1"
}
END_OF_NODE_JSON
}

fetch() {
  python3 - "$@" <<'END_OF_FETCH'
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
END_OF_FETCH
}

main "$@"

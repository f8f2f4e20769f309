#cloud-boothook
#!/bin/bash
# Made by gpuinfra: fetches this node's bundle, verifies it, and starts its units.
# It contains no secret: the node fetches the bundle with its own role.
#
# cloud-init runs a boot hook early in every boot. A user script would be lost with the power: cloud-init marks it as done
# before it runs it (FileSemaphores in cloudinit/helpers.py). The first run installs gpuinfra-boot.service, which runs this
# script with `start` until the units of the bundle are started.
set -euo pipefail
umask 022
readonly HOME_OF_BUNDLES=/opt/gpuinfra
readonly BOOT=$HOME_OF_BUNDLES/boot
readonly UNITS=/etc/systemd/system
readonly UNIT=gpuinfra-boot.service
readonly STARTED=/var/lib/gpuinfra/started.json

main() {
  case ${1:-install} in
    # A configuration that was renewed stays in place when the machine boots with its first user data.
    install) [[ -e $BOOT/user-data ]] || install_unit ;;
    renew) install_unit ;;
    start) start ;;
  esac
}

# The copy of this script comes last, so it exists only with all other files.
install_unit() {
  mkdir -p "$BOOT" /etc/gpuinfra /var/lib/gpuinfra "$UNITS/multi-user.target.wants"
  node_json >/etc/gpuinfra/node.json.new
  boot_unit >"$UNITS/$UNIT"
  ln -sf "$UNITS/$UNIT" "$UNITS/multi-user.target.wants/$UNIT"
  cp -f "$0" "$BOOT/user-data.new"
  mv -f /etc/gpuinfra/node.json.new /etc/gpuinfra/node.json
  sync
  mv -f "$BOOT/user-data.new" "$BOOT/user-data"
  systemctl daemon-reload
  systemctl restart --no-block "$UNIT"
}

start() {
  trap 'log "line $LINENO of $BOOT/user-data failed; $UNIT runs it again in 30 s"' ERR
  local sha256 archive
  if cmp -s /etc/gpuinfra/node.json "$STARTED"; then
    log "the units of this configuration were started before"
    return
  fi
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
  cp -f /etc/gpuinfra/node.json "$STARTED.new"
  sync
  mv -f "$STARTED.new" "$STARTED"
  log "the bundle is installed; gpuinfra-bootstrap.service continues"
}

log() { echo "gpuinfra: $*"; }

of_bundle() {
  python3 -c 'import json, sys
node = json.load(open("/etc/gpuinfra/node.json"))
print({"region": node["region"], **node["bundle"]}[sys.argv[1]])' "$1"
}

# Atomic: a kill in the middle leaves only a temporary folder, which the next run deletes.
unpack() {
  local archive=$1 target=$2 draft
  rm -rf "$HOME_OF_BUNDLES"/.new-*
  draft=$(mktemp -d "$HOME_OF_BUNDLES/.new-XXXXXX")
  tar -xf "$archive" -C "$draft" --no-same-owner
  chmod 755 "$draft"
  sync
  mv -T "$draft" "$target"
  rm -f "$archive"
}

start_units() {
  local units
  cp -f "$HOME_OF_BUNDLES"/current/units/gpuinfra-* "$UNITS/"
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

boot_unit() {
  cat <<'END_OF_UNIT'
[Unit]
Description=gpuinfra: fetch the bundle of this node and start its units
DefaultDependencies=no
Wants=network-online.target
After=sysinit.target basic.target network-online.target cloud-final.service
Conflicts=shutdown.target
Before=shutdown.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
EnvironmentFile=-/etc/environment
ExecStart=/bin/bash /opt/gpuinfra/boot/user-data start
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=30
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
END_OF_UNIT
}

fetch() {
  cat >"$BOOT/fetch.py" <<'END_OF_FETCH'
"""The part of the download that is the same on all clouds: requests whose failures name their cause, and a loop without an end.

It is part of user data, so it is short and uses Python's standard library only.
"""

import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import pathlib
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

MAX_BYTES = 64 * 1024 * 1024
ATTEMPT_S = 300
LONGEST_PAUSE_S = 30
CLOCK_TOLERANCE_S = 60


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the credentials to another host."""

    def redirect_request(self, *_):
        """Make each redirect an error."""


STORE = urllib.request.build_opener(NoRedirect)
DIRECT = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
clock = {"offset_s": 0.0}


class Trouble(Exception):
    """Why an attempt failed, in one sentence."""


def ask(who, request, direct=False):
    """The content of one answer of `who`. The metadata service (`direct`) is asked without a proxy."""
    host = urllib.parse.urlsplit(request.full_url).netloc
    try:
        with DIRECT.open(request, timeout=10) if direct else STORE.open(request, timeout=60) as answer:
            note_date(answer.headers)
            return answer.read()
    except urllib.error.HTTPError as error:
        note_date(error.headers)
        raise Trouble(f"{who} ({host}): HTTP {error.code} {said(error)}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = " ".join(str(getattr(error, "reason", error)).split())
        proxy = "" if request.host in host else f" through the proxy {request.host}"
        raise Trouble(f"{who} ({host}){proxy}: {cause or type(error).__name__}") from None


def said(error):
    """The code in an error answer, or its text."""
    try:
        text = error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    code = error.headers.get("x-ms-error-code") or text.partition("<Code>")[2].partition("</Code>")[0]
    return code or " ".join(text.split())[:200] or error.reason


def note_date(headers):
    """The difference between the clock of the cloud and the clock of this machine."""
    with contextlib.suppress(TypeError, ValueError):  # no date
        clock["offset_s"] = email.utils.parsedate_to_datetime(headers["Date"]).timestamp() - time.time()


def fields(who, body, *names):
    """The fields of an answer in JSON. The message shows no value that can be a secret."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        said_instead = " ".join(body.decode("utf-8", "replace").split())[:200] or "it is empty"
    elif all(name in answer for name in names):
        return [answer[name] for name in names]
    else:
        said_instead = answer.get("Message") or f"it has {', '.join(answer) or 'no field'}"
    raise Trouble(f"{who}: the answer has no {' and '.join(names)}: {said_instead}")


def unpacked(data, sha256):
    """The tar archive."""
    stream = zlib.decompressobj(31)
    try:
        archive = stream.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise Trouble(f"the object is damaged: {error}") from None
    if not stream.eof:
        raise Trouble(f"the object is incomplete after {len(data)} bytes")
    digest = hashlib.sha256(archive).hexdigest()
    if digest != sha256:
        raise Trouble(f"the object has the SHA-256 {digest}, not {sha256}")
    return archive


def too_slow(*_):
    """The handler of the alarm."""
    raise Trouble(f"no complete answer within {ATTEMPT_S} s")


def run(who, shown, request):
    """Fetch the object of `request(bucket, key, region)` from `who`. A failed attempt is repeated for as long as it takes."""
    *place, sha256, target = sys.argv[1:]
    signal.signal(signal.SIGALRM, too_slow)
    data, pause = None, 1
    while data is None:
        try:
            signal.alarm(ATTEMPT_S)
            data = unpacked(ask(who, request(*place)), sha256)
            say = f"{shown(*place)}: fetched"
        except Trouble as trouble:
            say = f"{shown(*place)}: {trouble}; retrying in {pause} s"
        signal.alarm(0)
        if abs(clock["offset_s"]) > CLOCK_TOLERANCE_S:
            say += f"; the clock of this machine is off by {-clock['offset_s']:.0f} s"
        print(say, file=sys.stderr, flush=True)
        if data is None:
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
    with pathlib.Path(target).open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
END_OF_FETCH
  cat >"$BOOT/fetch-cloud.py" <<'END_OF_CLOUD'
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
END_OF_CLOUD
  python3 "$BOOT/fetch-cloud.py" "$@"
}

main "$@"

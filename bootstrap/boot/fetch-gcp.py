"""Fetch the bundle from Cloud Storage as the node's service account.
Arguments: bucket, key, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of user data, so it is short and uses Python's standard library only.
"""

import hashlib
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
METADATA = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal").rstrip("/")
STORAGE = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com").rstrip("/")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def token():
    """The service account's access token, requested without a proxy."""
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    request = urllib.request.Request("http://" + METADATA + path, headers={"Metadata-Flavor": "Google"})
    return json.loads(DIRECT.open(request, timeout=5).read())["access_token"]


def request(bucket, key):
    """A GET request for the object's content."""
    base = STORAGE if "://" in STORAGE else "http://" + STORAGE
    where = f"{base}/storage/v1/b/{urllib.parse.quote(bucket, safe='')}/o/{urllib.parse.quote(key, safe='')}?alt=media"
    return urllib.request.Request(where, headers={"Authorization": "Bearer " + token()})


def main():
    """Retry until the bundle is complete."""
    bucket, key, _region, sha256, target = sys.argv[1:]
    until, pause = time.monotonic() + PATIENCE_S, 1
    while True:
        try:
            with urllib.request.urlopen(request(bucket, key), timeout=60) as answer:
                data = zlib.decompressobj(31).decompress(answer.read(), MAX_BYTES)
            found = hashlib.sha256(data).hexdigest()
            if found == sha256:
                break
            why = f"its SHA-256 is {found}, not {sha256}"
        except urllib.error.HTTPError as error:
            text = " ".join(error.read(2000).decode("utf-8", "replace").split())[:200]
            why = f"HTTP {error.code} {text}"
        except (OSError, ValueError, zlib.error, KeyError) as error:
            why = str(error)
        # A new grant reaches Cloud Storage after some minutes, and so does a new NAT gateway.
        if time.monotonic() + pause > until:
            sys.exit(f"gs://{bucket}/{key} cannot be fetched: {why}")
        print(f"gs://{bucket}/{key}: {why}; retrying in {pause} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(pause * 2, 30)
    with pathlib.Path(target).open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


main()

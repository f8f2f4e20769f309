"""Fetch the bundle from blob storage with the node's own identity.
Arguments: container's address, name, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of custom data, so it is short and uses Python's standard library only.
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
METADATA = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://169.254.169.254").rstrip("/")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def token():
    """An access token for blob storage, requested without a proxy."""
    query = {"api-version": "2018-02-01", "resource": "https://storage.azure.com/"}
    identity = json.loads(pathlib.Path("/etc/gpuinfra/node.json").read_text(encoding="utf-8")).get("identity") or {}
    if identity.get("client_id"):
        query["client_id"] = identity["client_id"]
    url = METADATA + "/metadata/identity/oauth2/token?" + urllib.parse.urlencode(query)
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    return json.loads(DIRECT.open(request, timeout=10).read())["access_token"]


def location(container, name):
    """The blob's address, or its address at the endpoint that the az command's own variable sets."""
    path = "/" + urllib.parse.quote(name, safe="/-_.~")
    endpoint = os.environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
    if endpoint:
        parts = urllib.parse.urlsplit(container)
        return endpoint.rstrip("/") + "/" + parts.netloc.split(".")[0] + parts.path.rstrip("/") + path
    return container.rstrip("/") + path


def main():
    """Retry until the bundle is complete."""
    container, name, _, sha256, target = sys.argv[1:]
    shown = container + "/" + name
    until, pause = time.monotonic() + PATIENCE_S, 1
    while True:
        try:
            headers = {"Authorization": "Bearer " + token(), "x-ms-version": "2021-12-02"}
            with urllib.request.urlopen(
                urllib.request.Request(location(container, name), headers=headers), timeout=60
            ) as answer:
                data = zlib.decompressobj(31).decompress(answer.read(), MAX_BYTES)
            found = hashlib.sha256(data).hexdigest()
            if found == sha256:
                break
            why = f"its SHA-256 is {found}, not {sha256}"
        except urllib.error.HTTPError as error:
            code = error.headers.get("x-ms-error-code") or " ".join(error.read(300).decode("utf-8", "replace").split())
            why = f"HTTP {error.code} {code}"
        except (OSError, ValueError, zlib.error, KeyError) as error:
            why = str(error)
        # A new role assignment reaches blob storage after some minutes, and so does the name of a new private endpoint.
        if time.monotonic() + pause > until:
            sys.exit(f"{shown} cannot be fetched: {why}")
        print(f"{shown}: {why}; retrying in {pause} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(pause * 2, 30)
    with pathlib.Path(target).open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


main()

"""Fetch the bundle from Cloud Storage as the node's service account.
Arguments: bucket, key, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of user data, so it is short and uses Python's standard library only.
"""

import os
import urllib.parse
import urllib.request

from fetch import ask, fields, run

METADATA = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal").rstrip("/")
STORAGE = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com").rstrip("/")


def token():
    """The service account's access token."""
    url = "http://" + METADATA + "/computeMetadata/v1/instance/service-accounts/default/token"
    who = "the metadata server, asked for a token"
    headers = {"Metadata-Flavor": "Google"}
    return fields(who, ask(who, urllib.request.Request(url, headers=headers), direct=True), "access_token")[0]


def request(bucket, key, _region):
    """A GET request for the object's content."""
    base = STORAGE if "://" in STORAGE else "http://" + STORAGE
    where = f"{base}/storage/v1/b/{urllib.parse.quote(bucket, safe='')}/o/{urllib.parse.quote(key, safe='')}?alt=media"
    return urllib.request.Request(where, headers={"Authorization": "Bearer " + token()})


# A new grant reaches Cloud Storage after some minutes, and so does a new NAT gateway.
if __name__ == "__main__":
    run("Cloud Storage", lambda bucket, key, _: f"gs://{bucket}/{key}", request)

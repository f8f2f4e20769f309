"""Fetch the bundle from blob storage with the node's own identity.
Arguments: container's address, name, region, SHA-256 of the tar archive, path of the tar archive to write.

It is part of custom data, so it is short and uses Python's standard library only.
"""

import json
import os
import pathlib
import urllib.parse
import urllib.request

from fetch import ask, fields, run

METADATA = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://169.254.169.254").rstrip("/")


def token():
    """An access token for blob storage."""
    query = {"api-version": "2018-02-01", "resource": "https://storage.azure.com/"}
    identity = json.loads(pathlib.Path("/etc/gpuinfra/node.json").read_text(encoding="utf-8")).get("identity") or {}
    if identity.get("client_id"):
        query["client_id"] = identity["client_id"]
    url = METADATA + "/metadata/identity/oauth2/token?" + urllib.parse.urlencode(query)
    who = "the metadata service, asked for a token"
    return fields(
        who, ask(who, urllib.request.Request(url, headers={"Metadata": "true"}), direct=True), "access_token"
    )[0]


def location(container, name):
    """The blob's address, or its address at the endpoint that the az command's own variable sets."""
    path = "/" + urllib.parse.quote(name, safe="/-_.~")
    endpoint = os.environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
    if endpoint:
        parts = urllib.parse.urlsplit(container)
        return endpoint.rstrip("/") + "/" + parts.netloc.split(".")[0] + parts.path.rstrip("/") + path
    return container.rstrip("/") + path


def request(container, name, _region):
    """A GET request for the blob."""
    headers = {"Authorization": "Bearer " + token(), "x-ms-version": "2021-12-02"}
    return urllib.request.Request(location(container, name), headers=headers)


# A new role assignment reaches blob storage after some minutes, and so does the name of a new private endpoint.
if __name__ == "__main__":
    run("blob storage", lambda container, name, _: f"{container}/{name}", request)

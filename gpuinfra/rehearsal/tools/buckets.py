"""Cloud Storage FUSE of a stand-in node: mounts a bucket if the node's identity may list it.

The tool asks the metadata service for a token and Cloud Storage for a listing, as the real client does at a mount, so a missing
grant refuses the mount. The files are in a folder that all nodes of the rehearsal share, and are not objects of the stand-in cloud.
Messages: GoogleCloudPlatform/gcsfuse v3.11.2, docs/troubleshooting.md.
"""

from __future__ import annotations

import json
import shlex
import sys
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from . import mounts
from .arguments import Arguments
from .state import fail, read_state, read_text

KIND = "fuse.gcsfuse"
_VALUED = {name: name for name in (
    "--cache-dir", "--file-cache-max-size-mb", "--temp-dir", "--file-mode", "--dir-mode", "--metadata-cache-ttl-secs",
)}  # fmt: skip


def gcsfuse(argv: list[str]) -> int:
    """`gcsfuse [options] BUCKET MOUNT`, and `--version`."""
    arguments = Arguments(argv, {**_VALUED, "-o": "options"})
    if arguments.has("--version", "-v"):
        version = read_state()["packages"]["gcsfuse"]["version"]
        sys.stdout.write(f"gcsfuse version {version} (Go version go1.26.0)\n")
        return 0
    if len(arguments.words) != 2:
        return fail("Error: gcsfuse takes one or two arguments. Run `gcsfuse --help` for more info.")
    bucket, target = arguments.words
    if any(item["target"] == target.rstrip("/") for item in mounts.table()):
        return fail(
            "Error: daemonize.Run: readFromProcess: sub-process: mountWithArgs: mountWithStorageHandle: Mount: mount: "
            "running fusermount: exit status 1"
        )
    problem = _refusal(bucket)
    if problem:
        return fail(
            "Error: daemonize.Run: readFromProcess: sub-process: mountWithArgs: mountWithStorageHandle: fs.NewServer: "
            f"create file system: SetUpBucket: OpenBucket: {problem}"
        )
    given = [word for one in arguments.all("options") for word in one.split(",")]
    mode = "ro" if "ro" in given else "rw"
    options = f"{mode},nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,allow_other"
    code, text = mounts.attach({"source": bucket, "target": target, "type": KIND, "options": options})
    return fail(text, code) if code else 0


def _refusal(bucket: str) -> str:
    """Return why the bucket cannot be opened, or an empty text."""
    if "bucket-mount-refused" in read_state()["faults"]:
        return f"Bad credentials for bucket {bucket}: permission denied"
    environ = _environment()
    try:
        metadata = f"http://{environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/default/token"
        token = json.loads(_get(metadata, {"Metadata-Flavor": "Google"}))["access_token"]
        listing = f"{environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/{quote(bucket, safe='')}/o?maxResults=1"
        _get(listing, {"Authorization": f"Bearer {token}"})
    except HTTPError as error:
        if error.code in (401, 403):
            return f"Bad credentials for bucket {bucket}: permission denied"
        return f"Unknown bucket {bucket}: no such file or directory"
    except (URLError, KeyError, OSError) as error:
        return f"cannot list {bucket}: {error}"
    return ""


def _get(url: str, headers: dict[str, str]) -> bytes:
    with build_opener(ProxyHandler({})).open(Request(url, headers=headers), timeout=30) as answer:
        return answer.read()


def _environment() -> dict[str, str]:
    """Return the variables of /etc/environment, which units do not read."""
    lines = shlex.split(read_text("/etc/environment", ""))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}

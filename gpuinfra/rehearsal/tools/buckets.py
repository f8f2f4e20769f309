"""The programs with which stand-in nodes mount buckets: Cloud Storage FUSE and Mountpoint for Amazon S3.

A program asks the metadata service for credentials and the service for a list of one object, as the real one does at a mount, so a
missing grant refuses the mount. It then becomes a daemon, which ends when the bucket is unmounted. The files are in a folder that all
nodes of the rehearsal share, and are not objects of the stand-in cloud.

Messages and options: GoogleCloudPlatform/gcsfuse v3.11.2, docs/troubleshooting.md; awslabs/mountpoint-s3 v1.23.0, mountpoint-s3/src/{cli,run}.rs,
mountpoint-s3-fs/src/{fuse,s3}/config.rs and doc/TROUBLESHOOTING.md. Entries in the list of mounts: public outputs of `mount`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from . import mounts, signed
from .arguments import Arguments
from .state import State, change_state, fail, read_state, read_text

_USER_SPACE = "nosuid,nodev,{time},user_id=0,group_id=0,default_permissions,allow_other"
_GCSFUSE = (
    "--cache-dir", "--file-cache-max-size-mb", "--temp-dir", "--file-mode", "--dir-mode", "--metadata-cache-ttl-secs",
)  # fmt: skip
_MOUNTPOINT = ("--cache", "--max-cache-size", "--metadata-ttl", "--negative-metadata-ttl", "--file-mode", "--dir-mode")
_MOUNTPOINT_FLAGS = {"--allow-other", "--read-only", "--allow-delete", "--allow-overwrite"}


class Refused(Exception):
    """The bucket cannot be opened."""


def gcsfuse(argv: list[str]) -> int:
    """`gcsfuse [options] BUCKET MOUNT`, and `--version`."""
    arguments = Arguments(argv, {**{name: name for name in _GCSFUSE}, "-o": "options"})
    if arguments.has("--version", "-v"):
        version = read_state()["packages"]["gcsfuse"]["version"]
        sys.stdout.write(f"gcsfuse version {version} (Go version go1.26.0)\n")
        return 0
    if len(arguments.words) != 2:
        return fail("Error: gcsfuse takes one or two arguments. Run `gcsfuse --help` for more info.")
    bucket, target = arguments.words
    if _is_mounted(target):
        return fail(
            "Error: daemonize.Run: readFromProcess: sub-process: mountWithArgs: mountWithStorageHandle: Mount: mount: "
            "running fusermount: exit status 1"
        )
    try:
        _open(bucket, _list_cloud_storage, _gcsfuse_words)
    except Refused as problem:
        return fail(
            "Error: daemonize.Run: readFromProcess: sub-process: mountWithArgs: mountWithStorageHandle: fs.NewServer: "
            f"create file system: SetUpBucket: OpenBucket: {problem}"
        )
    given = [word for one in arguments.all("options") for word in one.split(",")]
    options = f"{'ro' if 'ro' in given else 'rw'},{_USER_SPACE.format(time='relatime')}"
    return _serve({"source": bucket, "target": target, "type": "fuse.gcsfuse", "options": options})


def _gcsfuse_words(bucket: str, code: int, text: str) -> str:
    if code in (401, 403):
        return f"Bad credentials for bucket {bucket}: permission denied"
    return f"Unknown bucket {bucket}: no such file or directory" if code else f"cannot list {bucket}: {text}"


def _list_cloud_storage(bucket: str, environ: dict[str, str]) -> None:
    metadata = f"http://{environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/default/token"
    token = json.loads(_get(Request(metadata, headers={"Metadata-Flavor": "Google"})))["access_token"]
    listing = f"{environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/{quote(bucket, safe='')}/o?maxResults=1"
    _get(Request(listing, headers={"Authorization": f"Bearer {token}"}))


def mount_s3(argv: list[str]) -> int:
    """`mount-s3 [options] BUCKET MOUNT`, and `--version`. The list of mounts does not contain the name of the bucket."""
    arguments = Arguments(argv, {name: name for name in _MOUNTPOINT})
    if arguments.has("--version", "-V"):
        sys.stdout.write(f"mount-s3 {read_state()['packages']['mount-s3']['version']}\n")
        return 0
    if unknown := sorted(arguments.flags - _MOUNTPOINT_FLAGS):
        return fail(f"error: unexpected argument '{unknown[0]}' found\n\nFor more information, try '--help'.", 2)
    if len(arguments.words) != 2:
        return fail("error: the following required arguments were not provided:\n  <BUCKET_NAME>\n  <DIRECTORY>", 2)
    bucket, target = arguments.words
    problem = ""
    if not os.path.isdir(target):
        problem = f"Error: mount point {target} does not exist"
    elif _is_mounted(target):
        problem = f"Error: mount point {target} is already mounted"
    else:
        try:
            _open(bucket, signed.list_bucket, _mountpoint_words)
        except Refused as refused:
            region = read_state()["instance"]["region"]
            words = f"0: initial ListObjectsV2 failed for bucket {bucket} in region {region}\n    {refused}"
            problem = f"Error: Failed to create S3 client\n\nCaused by:\n    {words}"
    if problem:
        return fail(f"{problem}\nError: Failed to create mount process")
    mode = "ro" if arguments.has("--read-only") else "rw"
    options = f"{mode},{_USER_SPACE.format(time='noatime')}"
    item = {"source": "mountpoint-s3", "target": target, "type": "fuse", "options": options, "server": f"s3-{bucket}"}
    return _serve(item, f"bucket {bucket} is mounted at {target}\n")


def _mountpoint_words(bucket: str, code: int, text: str) -> str:
    if code == 404:
        return "1: Service error\n    2: The bucket does not exist"
    if code:
        message = text.partition("<Message>")[2].partition("</Message>")[0] or "<no message>"
        return f"1: Client error\n    2: Forbidden: {message}"
    # The name of the code is the one of a name that cannot be resolved; recorded for a service without virtual hosts.
    words = "CRT error 1059: aws-c-io: AWS_IO_DNS_INVALID_NAME, Host name was invalid for dns resolution."
    return f"1: Client error\n    2: Unknown CRT error\n    3: {words}"


def _open(bucket: str, ask: Callable[[str, dict[str, str]], None], words: Callable[[str, int, str], str]) -> None:
    """Ask the service for a list of one object. Raises Refused with the program's words about the HTTP status, or 0 without an answer."""
    faults = read_state()["faults"]
    if "bucket-mount-refused" in faults:
        raise Refused(words(bucket, 403, "<Message>Access Denied</Message>"))
    if "bucket-missing" in faults:
        raise Refused(words(bucket, 404, ""))
    if "bucket-unreachable" in faults:
        raise Refused(words(bucket, 0, "the service does not respond"))
    try:
        ask(bucket, _environment())
    except HTTPError as error:
        raise Refused(words(bucket, error.code, error.read().decode("utf-8", "replace"))) from error
    except (URLError, KeyError, OSError) as error:
        raise Refused(words(bucket, 0, str(error))) from error


def _is_mounted(target: str) -> bool:
    return any(item["target"] == target.rstrip("/") for item in mounts.table())


def _serve(item: dict, said: str = "") -> int:
    """Mount the bucket, and leave a daemon that ends when the bucket is unmounted."""
    code, text = mounts.attach(item)
    if code:
        return fail(text, code)
    pid = os.fork()
    if pid:

        def change(state: State) -> None:
            for one in state["mounts"]:
                if one["target"] == item["target"]:
                    one["pid"] = pid

        change_state(change)
        sys.stdout.write(said)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.setsid()
    while True:
        signal.pause()


def _get(request: Request) -> bytes:
    with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
        return answer.read()


def _environment() -> dict[str, str]:
    """Return the variables of /etc/environment, which units do not read."""
    lines = shlex.split(read_text("/etc/environment", ""))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}

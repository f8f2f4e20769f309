"""The programs that stand-in nodes use to mount buckets: Cloud Storage FUSE, Mountpoint for Amazon S3 and BlobFuse.

As the real program does when it mounts a bucket, a program requests credentials from the metadata service and a list of
one object from the storage service. If a grant is missing, the mount fails. The program then becomes a daemon, which
exits when the bucket is unmounted. The files are in a folder that all nodes of the rehearsal share. They are not objects
in the stand-in cloud, but Mountpoint for Amazon S3 shows the objects that the bucket has when it is mounted.

Messages and options: GoogleCloudPlatform/gcsfuse v3.11.2, docs/troubleshooting.md; awslabs/mountpoint-s3 v1.23.0, mountpoint-s3/src/{cli,run}.rs,
mountpoint-s3-fs/src/{fuse,s3}/config.rs and doc/TROUBLESHOOTING.md; Azure/azure-storage-fuse commit 74098e3, cmd/mount.go, setup/advancedConfig.yaml,
component/azstorage/{azstorage,block_blob}.go and issue 2244. Entries in the list of mounts: public outputs of `mount`.
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
_BLOBFUSE = ("--config-file", "--disable-version-check", "--disable-writeback-cache", "--wait-for-mount")
_BLOBFUSE_KEYS = {
    "": {"read-only", "allow-other", "default-working-dir", "components"},
    "logging": {"type", "level"},
    "libfuse": {"attribute-expiration-sec", "entry-expiration-sec", "negative-entry-expiration-sec"},
    "file_cache": {"path", "max-size-mb", "timeout-sec", "refresh-sec", "cleanup-on-start"},
    "block_cache": {"block-size-mb", "mem-size-mb", "prefetch"},
    "attr_cache": {"timeout-sec"},
    "azstorage": {"account-name", "container", "endpoint", "mode", "appid", "max-retries"},
}
"""BlobFuse configuration keys that this tool knows. The real program ignores other keys."""
_MOUNTPOINT_FLAGS = {"--allow-other", "--read-only", "--allow-delete", "--allow-overwrite"}


class BucketRefused(Exception):
    """Raised if the bucket cannot be opened."""


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
    except BucketRefused as problem:
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
    """`mount-s3 [options] BUCKET MOUNT`, and `--version`. The list of mounts does not contain the bucket name."""
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
        except BucketRefused as refused:
            region = read_state()["instance"]["region"]
            words = f"0: initial ListObjectsV2 failed for bucket {bucket} in region {region}\n    {refused}"
            problem = f"Error: Failed to create S3 client\n\nCaused by:\n    {words}"
    if problem:
        return fail(f"{problem}\nError: Failed to create mount process")
    mode = "ro" if arguments.has("--read-only") else "rw"
    options = f"{mode},{_USER_SPACE.format(time='noatime')}"
    item = {"source": "mountpoint-s3", "target": target, "type": "fuse", "options": options, "server": f"s3-{bucket}"}
    for key, content in signed.bucket_objects(bucket, _environment()):
        mounts.fill(item, key, content)
    return _serve(item, f"bucket {bucket} is mounted at {target}\n")


def _mountpoint_words(bucket: str, code: int, text: str) -> str:
    if code == 404:
        return "1: Service error\n    2: The bucket does not exist"
    if code:
        message = text.partition("<Message>")[2].partition("</Message>")[0] or "<no message>"
        return f"1: Client error\n    2: Forbidden: {message}"
    # The error code means that a name cannot be resolved. It was recorded for a service without virtual hosts.
    words = "CRT error 1059: aws-c-io: AWS_IO_DNS_INVALID_NAME, Host name was invalid for dns resolution."
    return f"1: Client error\n    2: Unknown CRT error\n    3: {words}"


def blobfuse2(argv: list[str]) -> int:
    """`blobfuse2 mount --config-file=FILE [options] MOUNT`, and `--version`. The list of mounts does not contain the container name."""
    arguments = Arguments(argv, {name: name for name in _BLOBFUSE})
    if arguments.has("--version", "-v"):
        sys.stdout.write(f"blobfuse2 version {read_state()['packages']['blobfuse2']['version']}\n")
        return 0
    if unknown := sorted(arguments.flags):
        return fail(f"Error: unknown flag: {unknown[0]}")
    if len(arguments.words) != 2 or arguments.words[0] != "mount":
        return fail(f"Error: accepts 1 arg(s), received {len(arguments.words) - 1}")
    target = arguments.words[1]
    try:
        options, settings = _blobfuse_settings(read_text(arguments.one("--config-file")))
    except (OSError, ValueError) as problem:
        return fail(f"Error: invalid config file [{problem}]")
    if not os.path.isdir(target):
        return fail("Error: mount directory does not exist")
    if _is_mounted(target):
        return fail("Error: directory is already mounted")
    storage = settings["azstorage"]
    account = storage["account-name"]
    cache = settings.get("file_cache", {}).get("path")
    problem = ""
    if cache is not None and not os.path.isdir(cache):
        problem = f"config error in file_cache [{cache} does not exist]"
    else:
        try:
            _open(
                storage["container"],
                lambda name, environ: _list_container(name, environ, storage),
                lambda _, code, text: _blobfuse_words(account, code, text),
            )
        except BucketRefused as refused:
            problem = f"failed to authenticate azstorage credentials with error [{refused}]"
    if problem:
        return fail(f"Error: failed to initialize new pipeline [{problem}]")
    shown = f"{'ro' if options['read-only'] == 'true' else 'rw'},nosuid,nodev,relatime,user_id=0,group_id=0,allow_other,max_read=1048576"
    server = f"blob-{account}-{storage['container']}"
    return _serve({"source": "blobfuse2", "target": target, "type": "fuse", "options": shown, "server": server})


def _blobfuse_settings(text: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the top-level keys of a configuration, and the keys of each component. Raises ValueError for a key that this tool does not know."""
    top: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {"": top}
    section = ""
    for line in text.splitlines():
        if line.startswith("  - "):
            continue
        name, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            section = "" if value or name == "components" else name
        if section and not line.startswith(" "):
            parts[section] = {}
        elif name in _BLOBFUSE_KEYS.get(section, set()):
            parts[section][name] = value.strip()
        else:
            raise ValueError(f"unknown key {section}.{name}")
    return top, parts


def _blobfuse_words(account: str, code: int, text: str) -> str:
    if not code:
        host = f"{account}.blob.core.windows.net"
        return f'Get "https://{host}/?comp=list": dial tcp: lookup {host}: {text}'
    codes = {403: "AuthorizationPermissionMismatch", 404: "ContainerNotFound"}.get(code, str(code))
    return f"BlockBlob::TestPipeline : [{text.partition('<Code>')[2].partition('</Code>')[0] or codes}]"


def _list_container(container: str, environ: dict[str, str], storage: dict[str, str]) -> None:
    """Ask for a list of two blobs with a token of the configured identity."""
    query = f"api-version=2018-02-01&resource={quote('https://storage.azure.com/', safe='')}"
    if storage.get("appid"):
        query += f"&client_id={storage['appid']}"
    metadata = f"{environ['AZURE_POD_IDENTITY_AUTHORITY_HOST']}/metadata/identity/oauth2/token?{query}"
    token = json.loads(_get(Request(metadata, headers={"Metadata": "true"})))["access_token"]
    place = f"{environ['AZURE_STORAGE_SERVICE_ENDPOINT']}/{storage['account-name']}/{quote(container, safe='')}"
    listing = f"{place}?restype=container&comp=list&delimiter=%2F&maxresults=2"
    _get(Request(listing, headers={"Authorization": f"Bearer {token}", "x-ms-version": "2021-12-02"}))


def _open(bucket: str, ask: Callable[[str, dict[str, str]], None], words: Callable[[str, int, str], str]) -> None:
    """Request a list of one object from the service. Raises Refused with the program's message for the HTTP status (0 if there is no response)."""
    faults = read_state()["faults"]
    if "bucket-mount-refused" in faults:
        raise BucketRefused(words(bucket, 403, "<Message>Access Denied</Message>"))
    if "bucket-missing" in faults:
        raise BucketRefused(words(bucket, 404, ""))
    if "bucket-unreachable" in faults:
        raise BucketRefused(words(bucket, 0, "the service does not respond"))
    try:
        ask(bucket, _environment())
    except HTTPError as error:
        raise BucketRefused(words(bucket, error.code, error.read().decode("utf-8", "replace"))) from error
    except (URLError, KeyError, OSError) as error:
        raise BucketRefused(words(bucket, 0, str(error))) from error


def _is_mounted(target: str) -> bool:
    return any(item["target"] == target.rstrip("/") for item in mounts.table())


def _serve(item: dict, said: str = "") -> int:
    """Mount the bucket, and leave a daemon that exits when the bucket is unmounted."""
    code, text = mounts.attach(item)
    if code:
        return fail(text, code)
    pid = os.fork()
    if pid:

        def change(state: State) -> None:
            for mount in state["mounts"]:
                if mount["target"] == item["target"]:
                    mount["pid"] = pid

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

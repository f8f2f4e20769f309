"""curl and wget: vendor files are simulated, loopback addresses are real, and no other address exists.

A simulated file is a short text with its own URL. `gpg` and `sha256sum` use this text to return the result for the
vendor's file and to detect a corrupt file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from .arguments import Arguments
from .passing import remaining
from .passthrough import become_real
from .state import fail, loads, make_folder, read_state, read_text
from .universe import Universe, matches

MAGIC = "stand-in file "
STEPS = "/opt/gpuinfra/current/steps.json"
CORRUPT = {"download-corrupt": "*", "script-corrupt": "own", "enroot-corrupt": "https://github.com/NVIDIA/enroot/*"}
"""Maps a fault to the downloads that it changes: a pattern of their URL, or the kind of their row."""
LOCAL = ("http://127.0.0.1", "http://localhost", "http://169.254.169.254")
_VALUED = {
    "--proto", "--noproxy", "--connect-timeout", "--max-time", "-m", "--speed-limit", "--speed-time", "-Y", "-y", "--retry", "--retry-delay",
    "--retry-max-time", "-A", "--user-agent", "-H", "--header", "-X", "--request", "-d", "--data", "-D", "--dump-header", "-w", "--write-out", "--cacert",
}  # fmt: skip


def curl(argv: list[str]) -> int:
    """`curl [-fsSLo FILE] URL...`"""
    arguments = Arguments(
        argv, dict.fromkeys(_VALUED, "ignored") | {"-o": "output", "--output": "output", "-K": "configuration"}
    )
    output, urls = "*" if arguments.has("-O") else arguments.one("output"), arguments.words
    if configuration := arguments.one("configuration"):
        urls = [*urls, *(line.partition('"')[2].rstrip('"') for line in read_text(configuration, "").splitlines())]
    urls = [
        url if "://" in url else f"http://{url}" for url in urls
    ]  # curl(1): without a scheme, curl defaults to HTTP
    if len(urls) == 1 and urls[0].endswith(":9400/metrics"):
        from .exporter import answer

        return answer(urls[0])
    if len(urls) == 1 and urls[0].endswith(":9100/metrics"):
        from .exporter import node_answer

        return node_answer(urls[0])
    if len(urls) == 1 and urls[0].endswith("/-/ready"):
        from .monitoring import answer as ready

        return ready(urls[0])
    if any(url.startswith(LOCAL) for url in urls):
        return become_real("curl", argv)
    for url in urls:
        status, content = download(url)
        if status != 200:
            if status == 0:
                host = url.partition("://")[2].partition("/")[0]
                return fail(f"curl: (6) Could not resolve host: {host}", 6)
            return fail(f"curl: (22) The requested URL returned error: {status}", 22)
        _deliver(content, url.rpartition("/")[2] if output == "*" else output)
    return 0 if urls else fail("curl: try 'curl --help' for more information", 2)


def wget(argv: list[str]) -> int:
    """`wget [-q] [-O FILE] URL`"""
    arguments = Arguments(argv, {"-O": "output", "--output-document": "output"})
    output, urls = arguments.one("output"), arguments.words
    if any(url.startswith(LOCAL) for url in urls):
        return become_real("wget", argv)
    for url in urls:
        status, content = download(url)
        if status != 200:
            return fail(
                f"wget: unable to resolve host address or server answered {status}: {url}", 4 if status == 0 else 8
            )
        _deliver(content, output or url.rpartition("/")[2])
    return 0


def download(url: str) -> tuple[int, bytes]:
    """Return the HTTP status (0 for an unknown host) and the content of a vendor's file."""
    state = read_state()
    entry, universe = describe(url)
    if entry is None and declared_sha256(url):
        entry = {"kind": "own"}
    if entry is None:
        hosts = {item["url"].partition("://")[2].partition("/")[0] for item in universe.data["downloads"]}
        return (404 if url.partition("://")[2].partition("/")[0] in hosts else 0), b""
    if remaining("dns-off"):
        return 0, b""
    if "repository-503" in state["faults"]:
        return 503, b""
    content = _content(entry, url, universe)
    patterns = [pattern for fault, pattern in CORRUPT.items() if fault in state["faults"]]
    if any(pattern == entry["kind"] or matches(entry.get("url", ""), pattern) for pattern in patterns):
        content = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
    return 200, content


def describe(url: str) -> tuple[dict | None, Universe]:
    """Return the row for a URL. A mirror's URL ends with the vendor's host and path."""
    universe = Universe(read_state())
    bare = url.partition("://")[2]
    for item in universe.data["downloads"]:
        pattern = item["url"].partition("://")[2]
        if matches(bare, pattern) or matches(bare, "*/" + pattern):
            version = bare.partition("aws-efa-installer-")[2].partition(".tar.gz")[0]
            if version and version not in universe.data["efa"]:
                continue
            return item, universe
    return None, universe


def declared_sha256(url: str) -> str:
    """Return the declared checksum if this URL is the script of a declared step, or an empty string. A mirror's URL ends with the host and path."""
    bare = url.partition("://")[2]
    bundle: dict = loads(read_text(STEPS, "{}"))  # type: ignore[assignment]
    for step in bundle.get("steps", []):
        source = step.get("own", {}).get("url", "").partition("://")[2]
        if source and (bare == source or bare.endswith("/" + source)):
            return str(step["own"]["sha256"])
    return ""


def own_script(url: str) -> bytes:
    """Return the stand-in for a declared step's script. It does nothing, because a rehearsal does not download your script."""
    return f"#!/bin/sh\n# {MAGIC}{url}\necho 'a rehearsal does not download the script of this step'\n".encode()


def _content(entry: dict, url: str, universe: Universe) -> bytes:
    name = url.rpartition("/")[2]
    if entry["kind"] == "own":
        return own_script(url)
    if entry["kind"] == "deb":
        return f"{MAGIC}{url}\npackage {entry['package']} {entry['version']} amd64\nend\n".encode()
    if entry["kind"] == "key":
        words = universe.data["keys"][name]
        return "".join(
            f"stand-in key {key} {owner}\n" for key, owner in zip(words[::2], words[1::2], strict=True)
        ).encode()
    if entry["kind"] == "signature":
        import hashlib

        signed_url = url.rpartition(".")[0]
        signed = _content(describe(signed_url)[0] or {}, signed_url, universe)
        return f"stand-in signature {entry['key']} {hashlib.sha256(signed).hexdigest()}\n".encode()
    if entry["kind"] == "release":
        return release(name)
    return _efa_tarball(name.removeprefix("aws-efa-installer-").removesuffix(".tar.gz"))


def _efa_tarball(version: str) -> bytes:
    """Return an archive like AWS's, with an installer for the stand-in node."""
    script = f'#!/bin/bash\nset -e\nexec /run/standin/lib/tool efa-installer {version} "$@"\n'.encode()
    files = (("efa_installer.sh", script, 0o755), ("efa_installer_version", version.encode() + b"\n", 0o644))
    return _archive("aws-efa-installer", files)


def release(name: str) -> bytes:
    """Return an archive like that of a release of Prometheus or Alertmanager, with stand-in programs. `name` is the name of the archive."""
    folder = name.removesuffix(".tar.gz")
    tools = ("prometheus", "promtool") if name.startswith("prometheus-") else ("alertmanager", "amtool")
    scripts = [(tool, f'#!/bin/sh\nexec /run/standin/lib/tool {tool} "$@"\n'.encode(), 0o755) for tool in tools]
    return _archive(folder, (*scripts, ("LICENSE", f"{MAGIC}{name}\n".encode(), 0o644)))


def _archive(folder: str, files: Iterable[tuple[str, bytes, int]]) -> bytes:
    import gzip
    import io
    import tarfile

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data, mode in files:
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def _deliver(content: bytes, output: str) -> None:
    if output in ("", "-"):
        sys.stdout.buffer.write(content)
        return
    make_folder(output.rpartition("/")[0])
    with open(output, "wb") as file:
        file.write(content)

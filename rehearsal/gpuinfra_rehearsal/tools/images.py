"""docker on a stand-in node: login, pull, the installers in Google's GPUDirect images, and the logs of their receive managers.

`images` in `universe.json` lists a registry's images and the files that each image installs.
A pull requires a login to the registry, and a run requires a pull.
"""

from __future__ import annotations

import os
import sys
from zlib import crc32

from .state import State, change_state, fail, read_state, read_text, unit_active, write_file
from .universe import table, upstream

_WORDS = ("login", "pull", "run", "logs", "stop")
_VALUED = (
    "--config", "-u", "--username", "-p", "--password", "--format", "-f", "--name",
    "--volume", "-v", "--entrypoint", "--env", "-e", "--gpus",
)  # fmt: skip


def handles(argv: list[str]) -> bool:
    """Return whether this module handles a command line."""
    words = _words(argv)[0]
    return words[:1] in ([word] for word in _WORDS) or words[:2] == ["image", "inspect"]


def run(argv: list[str]) -> int:
    """Run a command line that `handles` accepts."""
    words, options = _words(argv)
    if not unit_active("docker.service"):
        return fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
    if words[0] == "login":
        return _login(words[1:], options)
    if words[0] == "pull":
        return _pull(words[1], options)
    if words[0] in ("logs", "stop"):
        return _container(*words[:2])
    if words[:2] == ["image", "inspect"]:
        return _inspect(words[2], options)
    return _run(words[1:], options.get("--name", ""))


def docker_version() -> str:
    """Return the version of the installed engine, such as 29.8.1."""
    packages = read_state()["packages"]
    package = next(
        (packages[name]["version"] for name in ("docker-ce", "docker.io", "moby-engine") if name in packages), "0"
    )
    return upstream(package)


def info(argv: list[str]) -> int:
    """`docker info --format '{{json .}}'` or `'{{.ServerVersion}}'`: the version, and the runtimes of its configuration."""
    if not unit_active("docker.service"):
        return fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
    import json

    configured = json.loads(read_text("/etc/docker/daemon.json", "{}"))
    version = docker_version()
    if "{{.ServerVersion}}" in argv:
        sys.stdout.write(version + "\n")
        return 0
    answer = {
        "ServerVersion": version,
        "Runtimes": {"runc": {"path": "runc"}, **configured.get("runtimes", {})},
        "DefaultRuntime": configured.get("default-runtime", "runc"),
        "CgroupDriver": "systemd",
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _words(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    options: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if words[:1] == ["run"] and len(words) > 1:
            words.append(word)  # words after the image are its arguments
        elif name in _VALUED:
            options[name] = value if equals else next(rest, "")
        elif not word.startswith("-"):
            words.append(word)
    return words, options


def _host(text: str) -> str:
    return text.partition("://")[2].partition("/")[0] if "://" in text else text.partition("/")[0]


def _login(words: list[str], options: dict[str, str]) -> int:
    token = sys.stdin.read().strip()
    if not token:
        return fail("Error: Password Required")
    folder = options.get("--config", os.environ.get("HOME", "/root") + "/.docker")
    write_file(f"{folder}/config.json", f'{{"auths": {{"{_host(words[0])}": {{}}}}}}\n', 0o600)
    sys.stdout.write("Login Succeeded\n")
    return 0


def _known(reference: str) -> dict | None:
    for path, entry in table("universe.json")["images"].items():
        if reference.endswith("/" + path):
            return entry
    return None


def _pull(reference: str, options: dict[str, str]) -> int:
    state = read_state()
    if "repository-503" in state["faults"]:
        return fail(
            "error pulling image configuration: download failed after attempts=6: received unexpected HTTP status: 503 Service Unavailable"
        )
    if _known(reference) is None:
        return fail(f"Error response from daemon: manifest for {reference} not found: manifest unknown")
    if f'"{_host(reference)}"' not in read_text(options.get("--config", "/root/.docker") + "/config.json", ""):
        return fail(f"Error response from daemon: denied: Unauthenticated request to {_host(reference)}")

    def change(state: State) -> None:
        digest = "".join(f"{crc32(f'{reference}{part}'.encode()):08x}" for part in range(8))
        state.setdefault("images", {})[reference] = f"{reference.rpartition(':')[0]}@sha256:{digest}"

    change_state(change)
    sys.stdout.write(reference + "\n")
    return 0


def _inspect(reference: str, options: dict[str, str]) -> int:
    digest = read_state().get("images", {}).get(reference)
    if digest is None:
        return fail(f"Error response from daemon: No such image: {reference}")
    sys.stdout.write(
        f"{digest}\n" if "RepoDigests" in options.get("--format", "") else f'[{{"RepoDigests": ["{digest}"]}}]\n'
    )
    return 0


def _run(words: list[str], name: str) -> int:
    entry = _known(words[0])
    if entry is None or words[0] not in read_state().get("images", {}):
        return fail(f"docker: Error response from daemon: No such image: {words[0]}", 125)
    if words[1:2] == ["install"]:
        for path, text in entry["installs"].items():
            write_file(path, text)
    elif name:
        change_state(lambda state: state.setdefault("containers", {}).update({name: words[0]}))
    return 0


def _container(verb: str, name: str) -> int:
    """`docker logs NAME` and `docker stop NAME` for a container that `docker run --detach --rm` started."""
    image = read_state().get("containers", {}).get(name)
    if image is None:
        return fail(f"Error response from daemon: No such container: {name}")
    if verb == "logs":
        sys.stdout.write((_known(image) or {}).get("logs", ""))
    else:
        change_state(lambda state: state["containers"].pop(name))
    return 0

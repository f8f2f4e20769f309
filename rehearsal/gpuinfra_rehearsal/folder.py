"""The folder of one rehearsal, `.rehearsal/<stack>/`, and the Pulumi project in it.

`stack init` writes to a stack file, and secrets require a key. A rehearsal therefore works on a copy and only reads your file.
Each run rewrites the project file with absolute paths, because the program is not copied.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.shipped import shipped
from gpuinfra.spec import Software

SECRET_STAND_IN = "a-rehearsal-has-no-secrets"
"""The default parent folder of rehearsals. It contains one folder per stack."""


class _Below:
    """A path relative to another path of the folder."""

    def __init__(self, base: str, *names: str) -> None:
        self._base, self._names = base, names

    def __get__(self, folder: Folder, _: type[Folder]) -> Path:
        return getattr(folder, self._base).joinpath(*self._names)


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The files of one rehearsal."""

    root: Path
    stack: str
    shared: Path | None = None
    """The folder of the rehearsal whose state and stand-in cloud this rehearsal shares, because its stack uses that stack. None
    otherwise."""

    @property
    def base(self) -> Path:
        """The folder that contains the state and the stand-in cloud."""
        return self.shared or self.root

    project = _Below("root", "project")
    """Pulumi.yaml and the copy of the stack file."""
    state = _Below("base", "state")
    """Pulumi's state backend."""
    pulumi_home = _Below("root", "home")
    """PULUMI_HOME."""
    empty_home = _Below("root", "home", "empty")
    """HOME for every process in the rehearsal. The folder is empty, so tools do not find your settings."""
    processes = _Below("base", "processes.json")
    """The running processes."""
    events = _Below("root", "events.jsonl")
    """Events from the engine's last operation."""
    log = _Below("root", "engine.log")
    """Text output from the engine."""
    report = _Below("root", "report.json")
    """The machine-readable report. The HTML page is in the same folder."""
    page = _Below("root", "report.html")
    """The report as an HTML page."""
    retained = _Below("root", "retained.json")
    """Resources that `destroy` retained in the stand-in cloud. The next `up` adopts them."""

    @property
    def stack_file(self) -> Path:
        """The copy of the stack file, which the engine modifies."""
        return self.project / f"Pulumi.{self.stack}.yaml"

    def make(self) -> None:
        """Create the folders."""
        for path in (self.project, self.state, self.pulumi_home, self.empty_home):
            path.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)

    def passphrase(self) -> str:
        """Return the random passphrase of this rehearsal's state."""
        path = self.base / "passphrase"
        if not path.exists():
            write_atomically(path, secrets.token_hex(16))
        return path.read_text(encoding="utf-8")

    def operations(self) -> int:
        """Return the number of the next operation. Each number is used once."""
        path = self.base / "operations"
        number = int(path.read_text(encoding="utf-8")) + 1 if path.exists() else 1
        write_atomically(path, str(number))
        return number

    def _hide_from_git(self, path: Path) -> None:
        """Exclude the folder from Git, whatever the project's `.gitignore` contains. An existing file is kept."""
        ignore = path / ".gitignore"
        if not ignore.exists():
            write_atomically(ignore, "# Written by gpuinfra.\n*\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allow one rehearsal of a stack at a time. The lock is released when its process exits."""
        for path in (self.root, self.base):
            path.mkdir(parents=True, exist_ok=True)
            self._hide_from_git(path)
        with (self.base / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise DeploymentError(
                    f"a rehearsal of {self.stack} is already running in {self.base} (process {file.read().strip() or 'unknown'}); "
                    "wait until it ends, or set a different --folder"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


RUNTIMES = {"python": "__main__.py", "yaml": "Main.yaml", "nodejs": "package.json"}
"""The runtimes of programs, and the file that the folder of a program contains."""
YAML_PROGRAM = ("configuration", "variables", "resources", "components", "outputs", "pulumi")
"""The keys of a YAML program in a project file."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The Pulumi program behind a stack file."""

    project: str
    main: Path | None
    """The folder of the program, or None for a YAML program in the project file."""
    virtualenv: Path | None
    plugin: Path
    config: dict[str, Any]
    runtime: str = "python"
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of a runtime other than Python."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The YAML program in the project file."""


def find_program(stack_file: Path) -> Program:
    """Return the program for a stack file: the program of its project, or gpuinfra's built-in program if there is no
    project."""
    for folder in stack_file.resolve().parents:
        candidate = folder / "Pulumi.yaml"
        if candidate.is_file():
            return _from_project(candidate)
    return Program(
        project="gpuinfra", main=shipped("stacks"), virtualenv=_environment(None), plugin=shipped("plugin"), config={}
    )


def _from_project(path: Path) -> Program:
    document = read_yaml(path)
    runtime = document.get("runtime")
    options: Mapping[str, Any] = {}
    if isinstance(runtime, dict):
        options, runtime = mapping_in(runtime, "options", path), runtime.get("name")
    if runtime not in RUNTIMES:
        raise UsageError(f"{path}: runtime is {one_line(repr(runtime), 60)}; allowed: {', '.join(RUNTIMES)}")
    main = path.parent / str(document.get("main") or ".")
    body: dict[str, Any] = {}
    if runtime == "yaml" and not (main / RUNTIMES[runtime]).is_file():
        body = {key: document[key] for key in YAML_PROGRAM if key in document}
    if not body and not (main / RUNTIMES[runtime]).is_file():
        also = ", and the project file has no resources" if runtime == "yaml" else ""
        raise UsageError(f"{path}: main is {main}, which has no {RUNTIMES[runtime]}{also}")
    virtualenv = path.parent / str(options["virtualenv"]) if options.get("virtualenv") else None
    providers = mapping_in(document, "plugins", path).get("providers")
    own = [
        p
        for p in (providers if isinstance(providers, list) else [])
        if isinstance(p, dict) and p.get("name") == "gpuinfra" and p.get("path")
    ]
    plugin = (path.parent / str(own[0]["path"])).resolve() if own else shipped("plugin")
    return Program(
        project=str(document.get("name") or "gpuinfra"),
        main=None if body else main.resolve(),
        virtualenv=_environment(virtualenv) if runtime == "python" else None,
        plugin=plugin,
        config=dict(mapping_in(document, "config", path)),
        runtime=runtime,
        options={} if runtime == "python" else options,
        body=body,
    )


def _environment(configured: Path | None) -> Path | None:
    """Return the virtual environment for the program: the project's environment if it exists, otherwise the environment of this process."""
    if configured is not None and (configured / "bin" / "python").exists():
        return configured.resolve()
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def write_project(
    folder: Folder, program: Program, stack_file: Path, hosts: Mapping[str, Path] | None = None
) -> list[str]:
    """Write the project and the stack file. Return one note for each value that differs from your file.

    `hosts` contains the folders of language hosts that are not next to the engine.
    """
    runtime: dict[str, Any] = {"name": program.runtime}
    if program.options:
        runtime["options"] = dict(program.options)
    if program.virtualenv is not None:
        runtime["options"] = {"virtualenv": str(program.virtualenv)}
    document: dict[str, Any] = {
        "name": program.project,
        "description": "a rehearsal; rewritten by every run",
        "runtime": runtime,
        "plugins": {"providers": [{"name": "gpuinfra", "path": str(program.plugin)}]},
        **program.body,
    }
    if program.main is not None:
        document["main"] = str(program.main)
    if hosts:
        document["plugins"]["languages"] = [{"name": name, "path": str(path)} for name, path in hosts.items()]
    if program.config:
        document["config"] = program.config
    _dump(document, folder.project / "Pulumi.yaml")
    copy = read_yaml(stack_file)
    if "config" not in copy and "where" in copy:
        copy = {"config": {"gpuinfra:cluster": copy}}
    notes = _without_secrets(copy)
    if folder.stack_file.exists():
        salt = read_yaml(folder.stack_file).get("encryptionsalt")
        if salt:
            copy["encryptionsalt"] = salt
    _dump(copy, folder.stack_file)
    return notes


def copy_files(folder: Folder, software: Software) -> None:
    """Copy the scripts and the files of the declaration next to the copy of the stack file, because their paths are relative to it."""
    read = [(one.file, one.script) for one in software.steps] + [(one.file, one.read) for one in software.files]
    for file, source in read:
        if file and source:
            write_atomically(folder.project / file, source.content)


def _without_secrets(document: dict[str, Any]) -> list[str]:
    """Remove values that only your key can decrypt."""
    for key in ("encryptionsalt", "encryptedkey", "secretsprovider", "environment"):
        document.pop(key, None)
    config = document.get("config")
    replaced: list[str] = []
    if isinstance(config, dict):
        for key, value in config.items():
            if isinstance(value, dict) and set(value) == {"secure"}:
                config[key] = SECRET_STAND_IN
                replaced.append(f"the secret {key} is replaced by {SECRET_STAND_IN!r}")
    return replaced


def edit_stack(folder: Folder, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the declaration in the copy of the stack file with `change`."""
    document = read_yaml(folder.stack_file)
    change(document["config"]["gpuinfra:cluster"])
    _dump(document, folder.stack_file)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping. Raises UsageError for any other content."""
    try:
        value = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, ValueError) as error:
        raise UsageError(f"{path} is not YAML: {one_line(error, 200)}") from None
    except RecursionError:
        raise UsageError(f"{path} is not YAML: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a YAML mapping")
    return value


def mapping_in(document: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """Return a mapping in a document, or an empty one if the key is missing. Raises UsageError for any other value."""
    value = document.get(key)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{path}: {key} is {one_line(repr(value), 60)}; allowed: a mapping")
    return value or {}


def _dump(document: Mapping[str, Any], path: Path) -> None:
    from io import StringIO

    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(dict(document), text)
    write_atomically(path, text.getvalue())


def write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically. If the process is killed, the file contains either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file atomically."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")

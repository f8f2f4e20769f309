"""The folder of one rehearsal, `.rehearsal/<stack>/`, and the Pulumi project in it.

`stack init` writes into a stack file and secrets need a key, so a rehearsal works on a copy; the person's file is only read.
The project file is made anew for every run, with absolute paths, because the program stays where it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gpuinfra.errors import DeploymentError, UsageError
from gpuinfra.shipped import shipped

SECRET_STAND_IN = "a-rehearsal-has-no-secrets"


@dataclass(frozen=True, kw_only=True)
class Folder:
    """Where everything of one rehearsal is."""

    root: Path
    stack: str
    shared: Path | None = None
    """Folder of the rehearsal whose state and stand-in cloud this one shares, because its stack stands on that one's; None for its own."""

    @property
    def ground(self) -> Path:
        """Where state and stand-in cloud are."""
        return self.shared or self.root

    @property
    def project(self) -> Path:
        """Pulumi.yaml and the copy of the stack file."""
        return self.root / "project"

    @property
    def stack_file(self) -> Path:
        """The copy that the engine may write into."""
        return self.project / f"Pulumi.{self.stack}.yaml"

    @property
    def state(self) -> Path:
        """Pulumi's own state."""
        return self.ground / "state"

    @property
    def home(self) -> Path:
        """PULUMI_HOME."""
        return self.root / "home"

    @property
    def person(self) -> Path:
        """HOME of everything in the rehearsal: empty, so that no tool finds a person's settings."""
        return self.root / "home" / "person"

    @property
    def processes(self) -> Path:
        """Who runs now."""
        return self.ground / "processes.json"

    @property
    def events(self) -> Path:
        """The engine's events of the last operation."""
        return self.root / "events.jsonl"

    @property
    def log(self) -> Path:
        """What the engine printed."""
        return self.root / "engine.log"

    @property
    def report(self) -> Path:
        """The report for programs; the page is beside it."""
        return self.root / "report.json"

    @property
    def page(self) -> Path:
        """The report for people."""
        return self.root / "report.html"

    @property
    def kept(self) -> Path:
        """What a destroy left in the stand-in cloud, with its ids, so that the next `up` adopts it."""
        return self.root / "kept.json"

    def make(self) -> None:
        """Make the folders."""
        for path in (self.project, self.state, self.home, self.person):
            path.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)

    def passphrase(self) -> str:
        """The passphrase of this rehearsal's state: random, kept here, of no use elsewhere."""
        path = self.ground / "passphrase"
        if not path.exists():
            write_atomically(path, secrets.token_hex(16))
        return path.read_text(encoding="utf-8")

    def operations(self) -> int:
        """A number for the next operation, never used twice."""
        path = self.ground / "operations"
        number = int(path.read_text(encoding="utf-8")) + 1 if path.exists() else 1
        write_atomically(path, str(number))
        return number

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One rehearsal of a stack at a time; the lock goes with its process, however that ends."""
        for path in (self.root, self.ground):
            path.mkdir(parents=True, exist_ok=True)
        with (self.ground / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise DeploymentError(
                    f"another rehearsal of {self.stack} runs in {self.ground} (process {file.read().strip() or 'unknown'}); "
                    "let it end, or give another --folder"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


@dataclass(frozen=True, kw_only=True)
class Program:
    """The Pulumi program behind a stack file."""

    project: str
    main: Path
    virtualenv: Path | None
    plugin: Path
    config: dict[str, Any]


def find_program(stack_file: Path) -> Program:
    """The program of a stack file: its own project's, or the one that ships with gpuinfra for a file without a project."""
    for folder in stack_file.resolve().parents:
        candidate = folder / "Pulumi.yaml"
        if candidate.is_file():
            return _from_project(candidate)
    return Program(
        project="gpuinfra", main=shipped("stacks"), virtualenv=_environment(None), plugin=shipped("plugin"), config={}
    )


def _from_project(path: Path) -> Program:
    document = _load(path)
    runtime = document.get("runtime")
    options: Mapping[str, Any] = {}
    if isinstance(runtime, dict):
        options, runtime = runtime.get("options") or {}, runtime.get("name")
    if runtime != "python":
        raise UsageError(f"{path}: runtime is {runtime!r}; a rehearsal runs Python programs")
    main = path.parent / str(document.get("main") or ".")
    if not (main / "__main__.py").is_file():
        raise UsageError(f"{path}: main is {main}, which has no __main__.py")
    virtualenv = path.parent / str(options["virtualenv"]) if options.get("virtualenv") else None
    providers = (document.get("plugins") or {}).get("providers") or []
    own = [p for p in providers if isinstance(p, dict) and p.get("name") == "gpuinfra" and p.get("path")]
    plugin = (path.parent / str(own[0]["path"])).resolve() if own else shipped("plugin")
    return Program(
        project=str(document.get("name") or "gpuinfra"),
        main=main.resolve(),
        virtualenv=_environment(virtualenv),
        plugin=plugin,
        config=dict(document.get("config") or {}),
    )


def _environment(wanted: Path | None) -> Path | None:
    """The virtual environment that the program runs in: the project's where it exists, else the one we run in."""
    if wanted is not None and (wanted / "bin" / "python").exists():
        return wanted.resolve()
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def write_project(folder: Folder, program: Program, stack_file: Path) -> list[str]:
    """Write project and stack file; returns what was changed in the copy, for people."""
    runtime: dict[str, Any] = {"name": "python"}
    if program.virtualenv is not None:
        runtime["options"] = {"virtualenv": str(program.virtualenv)}
    document: dict[str, Any] = {
        "name": program.project,
        "description": "a rehearsal; made anew for every run",
        "runtime": runtime,
        "main": str(program.main),
        "plugins": {"providers": [{"name": "gpuinfra", "path": str(program.plugin)}]},
    }
    if program.config:
        document["config"] = program.config
    _dump(document, folder.project / "Pulumi.yaml")
    copy = _load(stack_file)
    if "config" not in copy and "where" in copy:
        copy = {"config": {"gpuinfra:cluster": copy}}
    notes = _without_secrets(copy)
    if folder.stack_file.exists():
        salt = _load(folder.stack_file).get("encryptionsalt")
        if salt:
            copy["encryptionsalt"] = salt
    _dump(copy, folder.stack_file)
    return notes


def _without_secrets(document: dict[str, Any]) -> list[str]:
    """Take out what only the person's own key can open."""
    for key in ("encryptionsalt", "encryptedkey", "secretsprovider", "environment"):
        document.pop(key, None)
    config = document.get("config")
    replaced: list[str] = []
    if isinstance(config, dict):
        for key, value in config.items():
            if isinstance(value, dict) and set(value) == {"secure"}:
                config[key] = SECRET_STAND_IN
                replaced.append(f"the secret {key} is {SECRET_STAND_IN!r} here")
    return replaced


def edit_stack(folder: Folder, change: Any) -> None:
    """Let `change` edit the copy's declaration in place."""
    document = _load(folder.stack_file)
    change(document["config"]["gpuinfra:cluster"])
    _dump(document, folder.stack_file)


def _load(path: Path) -> dict[str, Any]:
    try:
        value = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no mapping")
    return value


def _dump(document: Mapping[str, Any], path: Path) -> None:
    from io import StringIO

    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(dict(document), text)
    write_atomically(path, text.getvalue())


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a kill leaves either the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: object) -> None:
    """A JSON document, written atomically."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")

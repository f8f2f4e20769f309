"""Files that people edit: each command that writes one loses nothing after a kill, on a full disk, beside a second operator and beside an edit."""

from __future__ import annotations

import ast
import errno
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuinfra.base import people_files
from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.people_files import FileChanged, FileVersion, existing, replace_file, replace_files, replaceable
from gpuinfra.cli import main
from gpuinfra.cli.calendar import _stop
from gpuinfra.cli.judgement import write_file
from gpuinfra.region.clone.write import target, write_all
from gpuinfra.search.failure import Failed
from gpuinfra.search.journal import SearchJournal
from gpuinfra.search.run import run
from gpuinfra.spec.load import read_stack
from tests.search.world import STOCK_OUT, TEXT, World

ROOT = Path(__file__).parents[2]
EDIT = "# an edit of a person\n"


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A command that writes a file in a folder."""

    act: Callable[[Path], object]
    mechanism: Callable[[Path], object] | None = None
    """The write of a command that takes long, for the tests of each step."""
    before: str | None = TEXT
    """The file before the command, or None if the command creates it."""
    file: str = "Pulumi.find.yaml"

    @property
    def quick(self) -> Writer:
        """The writer for the tests of each step."""
        return replace(self, act=self.mechanism or self.act)


def search(path: Path, zones: tuple[str, ...]) -> None:
    """`gpuinfra up` in an account without capacity in these zones."""
    world = World(path, refusals=dict.fromkeys(zones, STOCK_OUT))
    journal = SearchJournal(path, path.parent / "state")
    try:
        journal.begin("find")
        run(world.search(journal), again=False)
    finally:
        journal.close()


def scale_to_zero(path: Path) -> None:
    """`gpuinfra up` after a failure, with `on_failure: scale_to_zero`."""
    Failed(
        declared=read_stack(path), had_nodes=False, price=lambda _: "0", check_last=lambda: None,
        deploy=lambda: None, destroy=lambda: None, say=lambda _: None
    ).act()  # fmt: skip


def clone(path: Path, *more: str) -> None:
    """`gpuinfra clone` of a shipped stack to this file and its site."""
    words = ["clone", str(ROOT / "stacks" / "Pulumi.aws-p4d.yaml"), "--region", "us-west-2", "--output", str(path)]
    if main([*words, *more]):
        raise FileChanged("see stderr")


def init(path: Path, *more: str) -> None:
    """`gpuinfra init` in a project."""
    (path.parent / "Pulumi.yaml").write_text("name: own\nruntime: yaml\n")
    words = [
        "init",
        "--yes",
        "--cloud",
        "aws",
        "--region",
        "us-east-1",
        "--machine",
        "g5.xlarge",
        "--output",
        str(path),
    ]
    if main([*words, *more]):
        raise FileChanged("see stderr")


def forced(path: Path) -> None:
    """The write of `--force`."""
    write_all([(target(path, force=True), "new\n")])


ON_FAILURE = TEXT.replace("    pools:", "    handover: {on_failure: scale_to_zero}\n    pools:")
WRITERS = {
    "up, next placement": Writer(act=lambda path: search(path, ("use1-az4",))),
    "up, without nodes": Writer(act=lambda path: search(path, ("use1-az4", "use1-az6", "use1-az1"))),
    "up, scale to zero": Writer(act=scale_to_zero, before=ON_FAILURE),
    "calendar --stop-idle": Writer(act=lambda path: _stop(read_stack(path), frozenset({"gpu"}))),
    "clone": Writer(act=clone, mechanism=lambda path: write_all([(target(path, force=False), "new\n")]), before=None),
    "clone --force": Writer(act=lambda path: clone(path, "--force"), mechanism=forced),
    "init": Writer(act=init, mechanism=lambda path: write_all([(target(path, force=False), "new\n")]), before=None),
    "init --force": Writer(act=lambda path: init(path, "--force"), mechanism=forced),
    "an output file, such as that of adopt and prices": Writer(act=lambda path: write_file(path, "{}\n", "--out")),
    "a new output file": Writer(act=lambda path: write_file(path, "{}\n", "--out"), before=None),
}
"""Each command that writes a stack file, and the output files of other commands."""


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.long] if name == "up, without nodes" else []) for name in WRITERS]
)
def writer(request: pytest.FixtureRequest) -> Writer:
    """One command after the other."""
    return WRITERS[request.param]


class System:
    """The functions of the operating system for the mechanism. `step` runs before each call that reads or changes a file or a folder."""

    STEPS = ("open", "fsync", "link", "replace")

    def __init__(self, step: Callable[[str], None]) -> None:
        self.step = step

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        return self.around(name, found) if name in self.STEPS else found

    def around(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        """The function with a step before it."""

        def call(*given: object, **more: object) -> object:
            self.step(name)
            return function(*given, **more)

        return call


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Run a function at each step of the mechanism."""
    real = people_files.exchange

    def start(step: Callable[[str], None]) -> None:
        system = System(step)
        monkeypatch.setattr(people_files, "os", system)
        monkeypatch.setattr(people_files, "exchange", system.around("exchange", real))

    return start


def start(writer: Writer, folder: Path) -> Path:
    """A folder with the file as it is before the command."""
    folder.mkdir(parents=True)
    path = folder / writer.file
    if writer.before is not None:
        path.write_text(writer.before)
        path.chmod(0o640)
    return path


def undisturbed(writer: Writer, folder: Path) -> set[str | None]:
    """The contents of the file before, during and after the command without a disturbance."""
    path, seen = start(writer, folder), {writer.before}
    real = people_files._Draft.commit

    def commit(draft: people_files._Draft) -> None:
        real(draft)
        seen.add(path.read_text() if path.exists() else None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(people_files._Draft, "commit", commit)
        try_to(writer, path)
    assert len(seen) > 1, "the command writes the file with the mechanism"
    return seen


def try_to(writer: Writer, path: Path) -> str:
    """Run a command, and return its error."""
    try:
        writer.act(path)
    except GpuinfraError as problem:
        return str(problem)
    return ""


def drafts(folder: Path) -> list[Path]:
    """The files that the mechanism left."""
    return sorted(folder.glob(".gpuinfra-*"))


def steps(limit: int = 200) -> Iterator[int]:
    """The numbers of the steps, until the test ends the loop."""
    yield from range(1, limit)
    raise AssertionError("the command never ends")


def test_kill_at_each_step_leaves_a_whole_file(writer: Writer, tmp_path: Path) -> None:
    """The process ends at once at each step. The file has one of the contents that the command writes, and the mode that it had."""
    writer = writer.quick
    contents = undisturbed(writer, tmp_path / "whole")
    for moment in steps():
        path = start(writer, tmp_path / str(moment))
        if not killed_at(moment, writer, path):
            break
        assert (path.read_text() if path.exists() else None) in contents
        if writer.before is not None:
            assert path.stat().st_mode & 0o777 == 0o640


def killed_at(moment: int, writer: Writer, path: Path) -> bool:
    """Run the command in a process that ends at this step. Return whether there is such a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads
        child = os.fork()
    if not child:
        count = 0

        def step(_: str) -> None:
            nonlocal count
            count += 1
            if count == moment:
                os._exit(9)

        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            people_files.os = System(step)  # type: ignore[assignment]
            people_files.exchange = System(step).around("exchange", people_files.exchange)  # type: ignore[assignment]
            try_to(writer, path)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def append(path: Path) -> None:
    """An editor that writes into the file."""
    with path.open("a") as file:
        file.write(EDIT)


def save_as(path: Path) -> None:
    """An editor that replaces the file."""
    text = path.read_text() if path.exists() else ""
    other = path.with_name("editor")
    other.write_text(text + EDIT)
    other.replace(path)


def second_operator(path: Path) -> None:
    """Another command that uses the mechanism."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(people_files, "os", os)
        replace_file(replaceable(path), (path.read_text() if path.exists() else "") + EDIT, "")


@pytest.mark.parametrize("edit", [append, save_as, second_operator])
def test_an_edit_at_each_step_is_kept(
    writer: Writer, edit: Callable[[Path], None], tmp_path: Path, disturb: Callable[[Callable[[str], None]], None]
) -> None:
    """Whenever somebody changes the file during the command, the change is in the file afterwards. An edit that was not merged is one error."""
    writer = writer.quick
    for moment in steps():
        path, count, editing = start(writer, tmp_path / str(moment)), 0, False

        def step(_: str, moment: int = moment, path: Path = path) -> None:
            nonlocal count, editing
            if editing:
                return
            count += 1
            if count == moment:
                editing = True
                edit(path)
                editing = False

        disturb(step)
        error = try_to(writer, path)
        if count < moment:
            break
        assert path.read_text().count(EDIT) == 1, (moment, error)
        assert drafts(path.parent) == []


@pytest.mark.parametrize("full", ["open", "write", "fsync", "rename"])
def test_full_disk_loses_nothing(
    writer: Writer, full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If any operation finds no space, the error says so, the file is as before, and nothing remains."""
    path = start(writer, tmp_path / "full")

    def refuse(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full(System):
        def __getattr__(self, name: str) -> object:
            if name == "fdopen" and full == "write":
                return lambda handle, mode: os.fdopen(os.open("/dev/full", os.O_WRONLY), mode)
            if name == "open" and full == "open":
                return lambda path, flags, *mode: refuse() if flags & os.O_CREAT else os.open(path, flags, *mode)
            refused = {"fsync": ("fsync",), "rename": ("link", "replace")}.get(full, ())
            return refuse if name in refused else getattr(os, name)

    monkeypatch.setattr(people_files, "os", Full(lambda _: None))
    if full == "rename":
        monkeypatch.setattr(people_files, "exchange", lambda *_: False)
    error = try_to(writer, path) + capsys.readouterr().err
    assert "No space left on device; free space on the disk" in error
    assert (path.read_text() if path.exists() else None) == writer.before
    assert drafts(path.parent) == []


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    """If a second file changed, the first one has its earlier content again."""
    one, two, new = (tmp_path / name for name in ("one", "two", "new"))
    one.write_text("1")
    two.write_text("2")
    read = [replaceable(path) for path in (new, one, two)]
    two.write_text("edited")
    with pytest.raises(FileChanged, match="two changed after"):
        replace_files([(version, "ours") for version in read], "")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one": "1", "two": "edited"}


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_planted_draft_is_not_written(tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even somebody who knows the name of the temporary file cannot redirect the write. The command ends, and all files are as before."""
    monkeypatch.setattr("gpuinfra.base.people_files.secrets.token_hex", lambda _: "known")
    path, victim, draft = tmp_path / "Pulumi.x.yaml", tmp_path / "victim", tmp_path / ".gpuinfra-known.tmp"
    path.write_text("text")
    victim.write_text("precious")
    if planted == "link":
        draft.symlink_to(victim)
    else:
        draft.write_text("theirs")
    with pytest.raises(GpuinfraError):
        replace_file(existing(path), "ours", "")
    assert (path.read_text(), victim.read_text()) == ("text", "precious")
    assert draft.read_text() == ("precious" if planted == "link" else "theirs")


def test_links_are_not_followed_to_other_files(tmp_path: Path) -> None:
    """The file that a linked stack file names is replaced and the link stays. A new file never replaces a link, and a link that changed is a change."""
    place, other, link = tmp_path / "place", tmp_path / "other", tmp_path / "Pulumi.x.yaml"
    place.write_text("text")
    other.write_text("other")
    link.symlink_to(place)
    replace_file(existing(link), "ours", "")
    assert (link.is_symlink(), place.read_text()) == (True, "ours")
    with pytest.raises(GpuinfraError, match="is a link"):
        replaceable(link)
    read = existing(link)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(FileChanged):
        replace_file(read, "again", "")
    absent = replaceable(tmp_path / "new")
    (tmp_path / "new").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileChanged):
        replace_file(absent, "ours", "")
    assert (place.read_text(), other.read_text(), (tmp_path / "nowhere").exists()) == ("ours", "other", False)


@pytest.mark.parametrize("name", ["Pulumi.x.yaml.new", ".Pulumi.x.yaml.tmp"])
def test_other_files_in_the_folder_stay(tmp_path: Path, name: str) -> None:
    """The name of the temporary file is random, and its creation is exclusive."""
    path, precious = tmp_path / "Pulumi.x.yaml", tmp_path / name
    path.write_text("text")
    precious.write_text("precious")
    replace_file(existing(path), "ours", "")
    assert (path.read_text(), precious.read_text()) == ("ours", "precious")


def test_a_file_system_without_exchange_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the operation of the kernel, the file is compared immediately before it is replaced."""
    monkeypatch.setattr(people_files, "exchange", lambda *_: False)
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text("text")
    read: FileVersion = existing(path)
    replace_file(read, "ours", "")
    assert (path.read_text(), drafts(tmp_path)) == ("ours", [])
    with pytest.raises(FileChanged):
        replace_file(read, "ours", "")


OTHER_WRITES = {
    "base/people_files.py": "the mechanism",
    "base/private_files.py": "private files with keys and settings in the user's state folder",
    "bundle.py": "the cache of bundles",
    "cli/__init__.py": "the null device, in place of a closed output",
    "cli/completion.py": "the completion script of the shell",
    "cli/job.py": "the output of a job, in a new file",
    "cli/judgement.py": "evidence in the folder of --save, and devices",
    "cli/ssh.py": "the key folder in the user's state folder",
    "clouds/login.py": "the SSH key pair in the user's state folder",
    "engine/entries.py": "the cache of tools",
    "engine/go.py": "the cache of tools",
    "engine/keep.py": "the cache of tools",
    "engine/pending.py": "the state for `pulumi stack import`, in a temporary folder",
    "engine/release.py": "the cache of tools",
    "engine/up.py": "an import file for `pulumi import`, in a temporary folder",
    "reference/schema.py": "the schema in this repository",
    "remote/agent.py": "files on a node",
    "remote/record.py": "the lock in the user's state folder",
}
"""The modules that write files in another way, and what they write. None of it is a file that a person edits. `node/` writes only on nodes."""
_CALLS = {
    "write_text",
    "write_bytes",
    "rename",
    "mkstemp",
    "NamedTemporaryFile",
    "link",
    "symlink",
    "symlink_to",
    "hardlink_to",
}


def test_no_other_module_writes_files() -> None:
    """A module that writes a file either uses the mechanism, or is in the table with what it writes."""
    found = {
        str(path.relative_to(ROOT / "gpuinfra"))
        for path in sorted((ROOT / "gpuinfra").rglob("*.py"))
        if path.relative_to(ROOT / "gpuinfra").parts[0] != "node"
        and any(map(_writes, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == set(OTHER_WRITES)


def _writes(node: ast.AST) -> bool:
    """Whether a call writes or names a file."""
    if not isinstance(node, ast.Call):
        return False
    function, words = node.func, [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    of_os = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "os"
    if name == "open":
        flags = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        return bool(flags & {"O_WRONLY", "O_RDWR", "O_CREAT"}) or any(
            isinstance(one, str) and one[:1] in ("w", "a", "x") and len(one) <= 3 for one in words
        )
    return name in _CALLS or (of_os and name == "replace")

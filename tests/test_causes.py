"""Decisions depend on causes: no condition in the code searches a text that this project wrote."""

from __future__ import annotations

import ast
import json
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest

ROOT = Path(__file__).parents[1]
WRITERS = ("gpuinfra", "plugin", "policy")
"""Folders whose texts are this project's own. The rehearsal also writes the texts of the clouds and tools that it stands in for."""
READERS = (*WRITERS, "rehearsal/gpuinfra_rehearsal")
"""Folders whose conditions are examined."""

SEARCHES = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "removeprefix", "removesuffix"),
        *("partition", "rpartition", "split", "rsplit"),
        *("search", "match", "fullmatch", "findall", "finditer", "fnmatch", "fnmatchcase"),
    }
)
OF_LISTS = frozenset({"index", "count"})
"""Those that lists and tuples also have."""
MESSAGES = frozenset(
    {
        *("reason", "message", "hint", "fix", "why", "problem", "summary", "what_to_do", "refused"),
        *("what", "note", "doubt", "in_words"),
    }
)
"""Names of attributes and keys that contain a text for people."""
SEVERAL = frozenset({"unknown", "notes", "problems", "excluded"})
"""Names of attributes and keys that contain several texts for people."""
_WORDS = re.compile(r"[^\W\d_]\w*[^\w\n]*\s[^\w\n]*\w+")
"""Two words with a space between them."""
_PLACEHOLDER = re.compile(r"%[-\d.]*[sdrf]")
HOLE = "\0"
"""Stands for a value in an f-string."""

OTHERS_DATA = frozenset({"refusals.json"})
"""Data files with texts of others."""
OTHERS: dict[tuple[str, str], str] = {
    ("gpuinfra/cli/__init__.py", "str(problem).startswith('Symlink loop from ')"): "Python: pathlib",
    ("gpuinfra/cli/__init__.py", "str(problem).removeprefix('Symlink loop from ')"): "Python: pathlib",
    ("gpuinfra/cli/stacks.py", "NO_PROJECT in reason"): "the Pulumi CLI",
    ("gpuinfra/cli/stacks.py", "NO_STACK in done.stderr"): "the Pulumi CLI",
    ("gpuinfra/clouds/already_exists.py", "word in error"): "the clouds, through the providers of Pulumi",
    ("gpuinfra/clouds/azure/handover/attested.py", "issuer in ISSUERS"): "Azure: certificates",
    (
        "gpuinfra/clouds/gcp/preflight.py",
        "re.search(f'\\\\b{re.escape(one)}\\\\b', str(error))",
    ): "Google Cloud: permission that cannot be tested",
    (
        "gpuinfra/clouds/gcp/preflight.py",
        "re.search(\"'([a-z]+\\\\.[A-Za-z]+\\\\.[A-Za-z]+)'\", message)",
    ): "Google Cloud: denied permission",
    (
        "gpuinfra/clouds/gcp/public_prices.py",
        "DESCRIPTION.fullmatch(str(sku.get('description', '')))",
    ): "Google Cloud: price list",
    ("gpuinfra/clouds/gcp/public_prices.py", "match['part'] not in WANTED"): "Google Cloud: price list",
    ("gpuinfra/doctor/state.py", "re.search(NO_LOGIN, said)"): "the Pulumi CLI",
    ("gpuinfra/engine/locked.py", "_CONFLICT not in errors"): "the Pulumi CLI",
    ("gpuinfra/engine/locked.py", "_LOCKED.search(errors)"): "the Pulumi CLI",
    ("gpuinfra/engine/locked.py", "_LOCK.finditer(errors, match.end())"): "the Pulumi CLI",
    ("gpuinfra/engine/up.py", "NO_STACK in answer.stderr"): "the Pulumi CLI",
    ("gpuinfra/engine/state_files.py", "NO_STACK in done.stderr"): "the Pulumi CLI",
    ("gpuinfra/engine/disposable.py", "NO_STACK not in answer.stderr"): "the Pulumi CLI",
    ("gpuinfra/handover/refusals.py", "_CODE.fullmatch(text.text)"): "the clouds: recorded messages",
    ("gpuinfra/node/checks/burn_in.py", "one.status.lower() not in ('skip', 'not run', 'notrun')"): "DCGM",
    ("gpuinfra/node/checks/containers.py", "'runtime nvidia' not in found['docker']"): "Docker",
    (
        "gpuinfra/node/checks/containers.py",
        "'No such file or directory' in answers.raw('metadata-guard').stderr",
    ): "the C library",
    ("gpuinfra/node/checks/driver.py", "'No such file or directory' in answer.stderr"): "the C library",
    ("gpuinfra/node/checks/driver.py", "_MODULE.search(answers.text('driver-version'))"): "the NVIDIA driver",
    ("gpuinfra/node/checks/driver.py", "'Kernel Module' not in match.group(1)"): "the NVIDIA driver",
    ("gpuinfra/node/checks/driver.py", "'Open Kernel Module' in match.group(1)"): "the NVIDIA driver",
    ("gpuinfra/node/checks/fabric.py", "_GPU_LINE.match(text)"): "nvidia-smi",
    ("gpuinfra/node/checks/fabric.py", "name in _ERRORS"): "nvidia-smi",
    ("gpuinfra/node/checks/fabric.py", "_INFORMATION.match(name)"): "nvidia-smi",
    ("gpuinfra/node/checks/kernel_log.py", "'Linux version' in line"): "the kernel",
    ("gpuinfra/node/checks/kernel_log.py", "'NVRM: Xid' not in line"): "the NVIDIA driver",
    ("gpuinfra/node/checks/platform.py", "'no such file' in text"): "the C library",
    ("gpuinfra/node/checks/ports.py", "_LOST.search(line)"): "the kernel",
    ("gpuinfra/node/checks/ports.py", "_DEVICE.findall(line)"): "the kernel",
    ("gpuinfra/node/checks/speed.py", "_EXPLAINS.search(line)"): "NCCL",
    (
        "gpuinfra/node/nccl.py",
        "re.findall('NCCL INFO (?:\\\\[\\\\d+\\\\] )?Using network (.+)$', log, re.MULTILINE)",
    ): "NCCL",
    ("gpuinfra/node/nccl.py", "str(error).startswith('%s: %s' % (name, _ABSENT))"): "the dynamic linker",
    ("gpuinfra/node/nccl.py", "_OFI.findall(log)"): "aws-ofi-nccl",
    ("gpuinfra/node/nccl.py", "_ABOUT_NETWORK.search(text)"): "NCCL",
    ("gpuinfra/node/table.py", "pci not in ABSENT"): "nvidia-smi",
    ("gpuinfra/node/table.py", "serial not in ABSENT"): "nvidia-smi",
    ("gpuinfra/node/table.py", "FAILURE.search(serial)"): "nvidia-smi",
    ("gpuinfra/node/table.py", "cell.strip() in ABSENT"): "nvidia-smi",
    ("gpuinfra/node/table.py", "FAILURE.search(cell.strip())"): "nvidia-smi",
    ("gpuinfra/node/table.py", "cell.strip().strip('[]') == 'Insufficient Permissions'"): "nvidia-smi",
    ("gpuinfra/remote/connection.py", "'timeout' in str(error).lower()"): "paramiko",
    ("gpuinfra/remote/connection.py", "'timed out' not in text.lower()"): "paramiko",
    ("gpuinfra/remote/keys.py", "'passphrase' in str(error).lower()"): "paramiko",
    ("gpuinfra/remote/keys.py", "'password' in str(error).lower()"): "paramiko",
    ("gpuinfra/spec/shown.py", "_KEY.search(text)"): "OpenSSL and OpenSSH: private keys",
    (
        "rehearsal/gpuinfra_rehearsal/cloud/azure/http/arm.py",
        "re.search(\"resourceUri eq '([^']+)'\", wanted)",
    ): "the request of a client of Azure",
    (
        "rehearsal/gpuinfra_rehearsal/cloud/azure/http/offers.py",
        "re.search(\"location eq '([^']+)'\", query.get('$filter', ''))",
    ): "the request of a client of Azure",
    (
        "rehearsal/gpuinfra_rehearsal/cloud/core/replace.py",
        "_SENTENCE.search(one)",
    ): "the schemas of the providers of Pulumi",
    (
        "rehearsal/gpuinfra_rehearsal/retry_hints.py",
        "_TRANSIENT.search(error)",
    ): "the clouds, through the providers of Pulumi",
}
"""The conditions that search a text of others: file and condition -> who writes the text. Constants cite the source beside their text."""


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    path: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The name in imports."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True)
class Condition:
    """A condition about a text."""

    path: str
    line: int
    code: str
    literals: tuple[str, ...]
    """The texts that it compares with."""
    message: bool
    """Whether the other operand is a text for people."""


Text = tuple[str, bool]
"""A string, and whether it is the value of one of several names that one statement defines, such as `OPEN, CLOSED = "open", "closed"`."""


@dataclass
class Names:
    """The strings that the names of a module stand for."""

    strings: MutableMapping[str, tuple[Text, ...]] = field(default_factory=dict)

    def of(self, node: ast.AST) -> tuple[Text, ...]:
        """The strings in an expression: literals, parts of f-strings, elements of collections, and constants."""
        if isinstance(node, ast.Constant):
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            return ((text, False),) if isinstance(text, str) and text else ()
        if isinstance(node, ast.JoinedStr):
            return tuple((part, False) for part in self.joined(node).split(HOLE) if part)
        if isinstance(node, ast.Name):
            return self.strings.get(node.id, ())
        if isinstance(node, ast.Attribute):
            return self.strings.get(f"{node.value.id}.{node.attr}", ()) if isinstance(node.value, ast.Name) else ()
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return tuple(text for one in node.elts for text in self.of(one))
        if isinstance(node, ast.Dict):
            return tuple(text for one in node.keys if one for text in self.of(one))
        if isinstance(node, ast.Starred):
            return self.of(node.value)
        if isinstance(node, ast.BinOp):
            parts = (*self.of(node.left), *self.of(node.right))
            return tuple((one, kind) for text, kind in parts for one in _PLACEHOLDER.split(text) if one)
        if isinstance(node, ast.Call) and _name(node.func) in ("compile", "frozenset", "tuple"):
            return tuple(text for one in node.args for text in self.of(one))
        return ()

    def joined(self, node: ast.JoinedStr) -> str:
        """The text of an f-string, with a mark for each value that is not a constant."""
        parts = []
        for one in node.values:
            found = self.of(one.value if isinstance(one, ast.FormattedValue) else one)
            parts.append(found[0][0] if len(found) == 1 else HOLE)
        return "".join(parts)

    def define(self, statement: ast.stmt) -> None:
        """Add the names that a statement defines. A class defines `Class.NAME`, which its methods read as `self.NAME`."""
        if isinstance(statement, ast.ClassDef) and not any(_name(one).endswith("Enum") for one in statement.bases):
            own: dict[str, tuple[Text, ...]] = {}
            inside = Names(ChainMap(own, self.strings))
            for inner in statement.body:
                inside.define(inner)
            self.strings.update(
                {f"{one}.{name}": texts for name, texts in own.items() for one in (statement.name, "self", "cls")}
            )
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or value is None:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                self.strings[target.id] = self.of(value)
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for name, one in zip(target.elts, value.elts, strict=False):
                    self.strings[ast.unparse(name)] = tuple((text, True) for text, _ in self.of(one))


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@cache
def modules(folders: tuple[str, ...] = READERS) -> tuple[Module, ...]:
    """The files in these folders."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(Module(str(one.relative_to(ROOT)), ast.parse(one.read_text(encoding="utf-8"))) for one in paths)


def constants(every: Iterable[Module]) -> dict[str, Names]:
    """The strings of each module's own and imported constants, by module."""
    own: dict[str, Names] = {}
    for module in every:
        names = own.setdefault(module.path, Names())
        for statement in module.tree.body:
            names.define(statement)
    by_name = {module.name.removeprefix("rehearsal."): own[module.path] for module in every}
    found: dict[str, Names] = {}
    for module in every:
        names = Names(dict(own[module.path].strings))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom):
                source = _source(module, node)
                for alias in node.names:
                    local = alias.asname or alias.name
                    for name, texts in getattr(by_name.get(source), "strings", {}).items():
                        if name.partition(".")[0] == alias.name:
                            names.strings[name.replace(alias.name, local, 1)] = texts
                    for name, texts in getattr(by_name.get(f"{source}.{alias.name}"), "strings", {}).items():
                        names.strings[f"{local}.{name}"] = texts
        found[module.path] = names
    return found


def _source(module: Module, node: ast.ImportFrom) -> str:
    """The module or package from which a statement imports."""
    if not node.level:
        return str(node.module)
    up = node.level - module.path.endswith("__init__.py")
    package = (
        module.name.removeprefix("rehearsal.").rsplit(".", up)[0] if up else module.name.removeprefix("rehearsal.")
    )
    return f"{package}.{node.module}" if node.module else package


class Finder(ast.NodeVisitor):
    """Finds the conditions about texts in one module."""

    def __init__(self, module: Module, names: Names) -> None:
        self._module, self._names = module, names
        self._texts: list[set[str]] = [set()]
        self.found: list[Condition] = []
        self.literals: set[int] = set()
        """Literals that are operands of conditions, by identity."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Collect the local names that stand for a text for people or for a constant, then examine the body."""
        texts, before = set(self._texts[-1]), dict(self._names.strings)
        for inner in ast.walk(node):
            if isinstance(inner, ast.ExceptHandler) and inner.name:
                texts.add(f"str({inner.name})")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                if self._is_message(inner.value, texts):
                    texts |= {one.id for one in inner.targets if isinstance(one, ast.Name)}
                elif isinstance(inner.value, ast.Constant):
                    self._names.define(inner)
        self._texts.append(texts)
        self.generic_visit(node)
        self._texts.pop()
        self._names.strings = before

    def visit_For(self, node: ast.For) -> None:
        """Let the target of a loop over constants stand for each of them, and the target of a loop over texts for a text."""
        self._loop(node, [node])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """As in a loop."""
        self._loop(node, node.generators)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp  # type: ignore[assignment]

    def _loop(self, node: ast.AST, loops: Sequence[ast.For | ast.comprehension]) -> None:
        before, texts = dict(self._names.strings), set(self._texts[-1])
        for one in loops:
            if isinstance(one.target, ast.Name):
                self._names.strings[one.target.id] = self._names.of(one.iter)
                if self._is_message(one.iter, texts, SEVERAL):
                    texts.add(one.target.id)
        self._texts.append(texts)
        self.generic_visit(node)
        self._texts.pop()
        self._names.strings = before

    def visit_Compare(self, node: ast.Compare) -> None:
        """Examine `in`, `==` and their negations. The names that one statement defines are values if they are compared as a whole."""
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            if isinstance(operator, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                equal = isinstance(operator, ast.Eq | ast.NotEq)
                whole = equal or len(self._names.of(right)) > 1
                self._add(node, [left, right], [left, right], whole=whole, part=[] if equal else [right])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Examine methods of strings and of regular expressions."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            owner = node.func.value
            pattern = isinstance(owner, ast.Name) and owner.id == "re"
            own = [] if node.func.attr in OF_LISTS and len(self._names.of(owner)) > 1 else [owner]
            regex = pattern or bool(self._names.of(owner))
            if node.args:
                self._add(node, [*own, *node.args], [owner, *node.args], regex=regex, part=[owner, *node.args])
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        """Examine the cases of a `match`."""
        for case in node.cases:
            values = [one.value for one in ast.walk(case.pattern) if isinstance(one, ast.MatchValue)]
            self._add(node.subject, values, [node.subject], whole=True)
        self.generic_visit(node)

    def _add(
        self,
        node: ast.AST,
        operands: list[ast.expr],
        texts: list[ast.expr],
        *,
        regex: bool = False,
        whole: bool = False,
        part: Sequence[ast.expr] = (),
    ) -> None:
        """Add a condition, if its operands contain literals or if it searches a text for people, which are `part`."""
        found = [text for one in operands for text in self._names.of(one)]
        self.literals |= {id(inner) for one in operands for inner in ast.walk(one)}
        literals = [text for text, is_value in found if not (whole and is_value)]
        if regex:
            literals = [run for text in literals for run in runs(text)]
        if literals or any(self._is_message(one, self._texts[-1]) for one in part):
            message = any(self._is_message(one, self._texts[-1]) for one in texts)
            code = " ".join(ast.unparse(node).split())
            self.found.append(Condition(self._module.path, getattr(node, "lineno", 0), code, tuple(literals), message))

    def _is_message(self, node: ast.AST, texts: set[str], names: frozenset[str] = MESSAGES) -> bool:
        """Whether an expression is a text for people: `one.reason`, `one["reason"]`, `one.get("reason")`, `str(error)`, a part of these, or a name for one."""
        if isinstance(node, ast.Attribute):
            return node.attr in names
        if isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Slice):
                return self._is_message(node.value, texts, names)
            return isinstance(node.slice, ast.Constant) and node.slice.value in names
        if isinstance(node, ast.Name):
            return node.id in texts
        if isinstance(node, ast.NamedExpr):
            return self._is_message(node.value, texts, names)
        if isinstance(node, ast.BoolOp):
            return any(self._is_message(one, texts, names) for one in node.values)
        if isinstance(node, ast.Call):
            if _name(node.func) == "str" and node.args and f"str({_name(node.args[0])})" in texts:
                return True
            if isinstance(node.func, ast.Attribute):
                key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
                return (node.func.attr == "get" and key in names) or self._is_message(node.func.value, texts, names)
            return any(self._is_message(one, texts, names) for one in node.args)
        return False


def runs(pattern: str) -> Iterator[str]:
    """The parts of a regular expression that match themselves."""
    try:
        tree = parser.parse(pattern)
    except re.error:
        yield pattern
        return
    yield from filter(None, _runs(tree))


def _runs(tree: Iterable[tuple[object, object]]) -> Iterator[str]:
    run = ""
    for code, value in tree:
        if code is opcodes.LITERAL:
            run += chr(value)  # type: ignore[arg-type]
            continue
        yield run
        run = ""
        parts = value if isinstance(value, tuple | list) else ()
        for part in parts:
            if isinstance(part, parser.SubPattern):
                yield from _runs(part)
            elif isinstance(part, list):
                for one in part:
                    if isinstance(one, parser.SubPattern):
                        yield from _runs(one)
    yield run


def finders(every: Iterable[Module], names: dict[str, Names]) -> list[Finder]:
    """The conditions of each module."""
    found = []
    for module in every:
        finder = Finder(module, names[module.path])
        finder.visit(module.tree)
        found.append(finder)
    return found


def data() -> Iterator[str]:
    """The values in the data files of this project, without the texts of others."""
    for path in sorted(path for folder in WRITERS for path in (ROOT / folder).rglob("*.json")):
        if path.name not in OTHERS_DATA:
            remaining: list[object] = [json.loads(path.read_text(encoding="utf-8"))]
            while remaining:
                value = remaining.pop()
                if isinstance(value, str):
                    yield value
                elif isinstance(value, dict | list):
                    remaining += value.values() if isinstance(value, dict) else value


def written(every: Iterable[Module], names: dict[str, Names], literals: set[int]) -> str:
    """The texts of three words or more that the modules and data files contain, without docstrings and without operands of conditions, in lower case."""
    found = [text.lower() for text in data() if len(text.split()) >= 3]
    for module in every:
        skipped = {id(one.value) for one in ast.walk(module.tree) if isinstance(one, ast.Expr)} | literals
        for node in ast.walk(module.tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(one) for one in node.values}
                text = names[module.path].joined(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if len(text.split()) >= 3:
                found.append(text.lower())
    return "\n".join(found)


def searches(every: Iterable[Module]) -> list[Condition]:
    """The conditions that search a text that the writers among the modules write, or any text for people."""
    every = tuple(every)
    names = constants(every)
    found = finders(every, names)
    writers = [module for module in every if module.path.startswith(WRITERS)]
    ours = written(writers, names, set().union(*(finder.literals for finder in found)))
    return [
        condition
        for finder in found
        for condition in finder.found
        if condition.message or any(_WORDS.search(text) and text.lower().strip() in ours for text in condition.literals)
    ]


def test_no_condition_searches_a_text_of_this_project() -> None:
    """Each condition compares values, such as causes. A text of others can be searched, in a place that states who writes it."""
    found = {(one.path, one.code): one.line for one in searches(modules())}
    wrong = [f"{path}:{found[path, code]}: {code}" for path, code in found.keys() - OTHERS.keys()]
    assert not wrong, "compare a cause instead of a text:\n" + "\n".join(sorted(wrong))
    assert not OTHERS.keys() - found.keys(), "these conditions no longer exist"


def module(text: str, path: str = "gpuinfra/one.py") -> Module:
    """A module with this text."""
    return Module(path, ast.parse(text))


WRITER = module(
    """
REASON = "its group has not upgraded it yet"
TABLE = {"its group has not upgraded it yet": 1}
class Texts:
    LATE = "the deadline passed, too late"
LATE, EARLY = "the deadline passed", "too early"
def why(hours, version):
    return f"the evidence is {hours} hours old, so its GPUs are no longer verified"
def outdated(version):
    return "runs launch template version %s" % version
def other():
    return f"the node was set up before; {REASON}"
""",
    "gpuinfra/handover/texts.py",
)
IMPORTS = (
    "from gpuinfra.handover import texts\nfrom gpuinfra.handover.texts import LATE, REASON, TABLE, Texts\nimport re\n"
)


@pytest.mark.parametrize(
    "condition",
    [
        '"launch template" in node.text',
        '"Launch Template" not in words',
        '"any" in node.reason',
        'node.reason == "verified"',
        'check["hint"] == "x"',
        'check.get("reason") == "x"',
        'str(check.get("reason") or "").startswith("x")',
        "REASON in text",
        "text == REASON",
        "texts.REASON in text",
        "LATE in text",
        'text.startswith("its group has")',
        'text.endswith("no longer verified")',
        'text in ("no longer verified", "other")',
        're.search(r"launch template version (\\d+)", text)',
        're.search("GPUs are no longer", text)',
        'any(word in text for word in ("unrelated", "has not upgraded"))',
        'f"{count} hours old" in text',
        '"no longer" + " verified" in text',
        'text.startswith("%s its group has" % count)',
        "Texts.LATE in text",
        "text in TABLE",
        'text.removeprefix("its group has")',
        'text.partition("no longer verified")',
        're.split("no longer verified", text)',
        "node.reason.startswith(count)",
        "count in node.what",
        "text.endswith(node.note)",
        'node.reason.split(" ")[0]',
        'node.reason[:3] == "its"',
        'any(one.startswith(f"{count}: ") for one in check.get("unknown") or [])',
    ],
)
def test_a_search_of_a_text_of_this_project_is_found(condition: str) -> None:
    """Literals, constants, f-strings, regular expressions, and searches and comparisons of the fields of messages are found."""
    reader = module(
        f"{IMPORTS}def decide(node, check, text, words, count):\n    return {condition}\n", "gpuinfra/cli/decide.py"
    )
    assert [one.path for one in searches([WRITER, reader])] == [reader.path]


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        run()\n    except ValueError as error:\n        return 'gone' in str(error)",
        "text = check.get('reason')\n    return text == 'x'",
        "match text:\n        case 'no longer verified':\n            return 1",
        "start = 'the evidence is'\n    return text.startswith(start)",
        "for word in ('unrelated', 'no longer verified'):\n        if word in text:\n            return 1",
        "for one in check.unknown:\n        if text in one:\n            return 1",
    ],
)
def test_a_text_in_a_variable_is_found(body: str) -> None:
    """The text of an exception, a name for a message, a local constant, the target of a loop and the cases of a `match` are found."""
    reader = module(f"def decide(check, text):\n    {body}\n", "rehearsal/gpuinfra_rehearsal/decide.py")
    assert [one.path for one in searches([WRITER, reader])] == [reader.path]


def test_the_texts_of_data_files_are_found() -> None:
    """A search of a value of a data file is found: the table of measured throughput."""
    reader = module('def decide(row):\n    return row.startswith("Llama 3.1 8B")\n')
    assert [one.path for one in searches([reader])] == [reader.path]


@pytest.mark.parametrize(
    "condition",
    [
        "node.cause is Cause.OUTDATED",
        'node.outcome == "verified"',
        'node.reason == ""',
        "node.reason",
        "text == LATE",
        '"site" in layers',
        '"No space left on device" in text',
        'text.startswith("https://")',
        "first.reason == second.reason",
        '" ".join(node.reason.split())',
        "node.reason in layers",
        "node.kind is Kind.OLD",
    ],
)
def test_a_comparison_of_values_is_allowed(condition: str) -> None:
    """Causes, tokens, values that one statement enumerates, and texts that this project does not write are not reported."""
    reader = module(
        f"{IMPORTS}def decide(node, text, layers, first, second):\n    return {condition}\n", "gpuinfra/cli/decide.py"
    )
    assert searches([WRITER, reader]) == []

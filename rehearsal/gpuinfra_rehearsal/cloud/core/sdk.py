"""Reads the declarations of the installed Pulumi SDKs: resource types, functions, inputs, outputs, enums.

The wheels contain no schema, so the generated Python code is read as text. Importing all of `pulumi_aws` takes seconds
and hundreds of megabytes, but extracting one class from a file takes milliseconds. The generated code is regular:
each property has a `pulumi.getter` with its protocol name.

All lookups are lazy and cached. This module does not refer to any specific resource type.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any


class NotDeclared(LookupError):
    """Raised if the installed SDK has no such resource type or function."""


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a property.

    `kind` is str, int, float, bool, any, asset, list, map, object, enum or union. `name` is the class of an object or
    an enum and `folder` its location. A `loose` enum accepts any string. The SDK's list is for editor completion, and
    clouds offer machine types that it does not list yet.
    """

    kind: str
    item: Type | None = None
    options: tuple[Type, ...] = ()
    name: str = ""
    folder: Path | None = None
    loose: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Property:
    """One input or output: its name in the protocol, its type and its documentation."""

    name: str
    type: Type
    doc: str = ""

    @property
    def required(self) -> bool:
        return not self.type.optional


@dataclass(frozen=True)
class ResourceType:
    """A resource type with its inputs and outputs."""

    token: str
    inputs: dict[str, Property]
    outputs: dict[str, Property]
    secrets: frozenset[str] = frozenset()
    """Outputs that are always secret."""

    @property
    def required(self) -> list[str]:
        return [name for name, prop in self.inputs.items() if prop.required]


@dataclass(frozen=True)
class Function:
    """A function with its inputs and outputs."""

    token: str
    inputs: dict[str, Property]
    outputs: dict[str, Property]


@dataclass
class Sdk:
    """One installed SDK."""

    package: str
    root: Path
    _listings: dict[Path, dict[str, Path]] = field(default_factory=dict)

    @cached_property
    def version(self) -> str:
        return str(json.loads((self.root / "pulumi-plugin.json").read_text())["version"])

    @cached_property
    def _table(self) -> list[dict]:
        text = (self.root / "__init__.py").read_text()
        match = re.search(r'resource_modules="""\n(.*?)"""', text, re.S)
        return json.loads(match.group(1)) if match else []

    @cached_property
    def _classes(self) -> dict[str, tuple[Path, str]]:
        return {
            token: (self._folder(module["fqn"]), name)
            for module in self._table
            for token, name in module["classes"].items()
        }

    @cached_property
    def _folders(self) -> dict[str, Path]:
        return {module["mod"].split("/")[0]: self._folder(module["fqn"]) for module in self._table}

    def _folder(self, dotted: str) -> Path:
        return self.root.joinpath(*dotted.split(".")[1:])

    @property
    def tokens(self) -> list[str]:
        """Return all resource types."""
        return list(self._classes)

    def resource(self, token: str) -> ResourceType:
        """Return the resource type named `token`. Raises NotDeclared if there is none."""
        return _resource(self, token)

    def function(self, token: str) -> Function:
        """Return the function named `token`. Raises NotDeclared if there is none."""
        return _function(self, token)

    def file_of(self, folder: Path, name: str) -> Path | None:
        """Return the module in `folder` that contains `name`. The spelling differs only in underscores."""
        listing = self._listings.get(folder)
        if listing is None:
            listing = {path.stem.replace("_", ""): path for path in folder.glob("*.py")}
            self._listings[folder] = listing
        return listing.get(name.replace("_", "").lower())

    def __hash__(self) -> int:
        return hash((self.package, self.root))


def module_of(package: str) -> str:
    """Return the Python package that implements a Pulumi package."""
    return "pulumi_" + package.replace("-", "_")


@cache
def sdk(package: str) -> Sdk:
    """Return the installed SDK of a Pulumi package. Raises NotDeclared if it is not installed."""
    spec = importlib.util.find_spec(module_of(package))
    if spec is None or spec.origin is None:
        raise NotDeclared(f"the Pulumi SDK of {package} is not installed here ({module_of(package)})")
    return Sdk(package, Path(spec.origin).parent)


class _AnyProperties(dict[str, Property]):
    """Accepts every name as an optional property of any type. Iteration yields nothing."""

    def __contains__(self, name: object) -> bool:
        return name != "tagsAll"  # added by the provider itself

    def __missing__(self, name: str) -> Property:
        return Property(name, Type("any", optional=True))

    def get(self, name: str, default: Any = None) -> Property:
        return self[name]


class UntypedSdk:
    """Replaces a Pulumi SDK that does not exist. Accepts any type and function with any inputs. The outputs are the
    inputs."""

    version = "0.0.0"

    def resource(self, token: str) -> ResourceType:
        return ResourceType(token, _AnyProperties(), _AnyProperties())

    def function(self, token: str) -> Function:
        return Function(token, _AnyProperties(), _AnyProperties())


@cache
def _resource(owner: Sdk, token: str) -> ResourceType:
    if token not in owner._classes:
        raise NotDeclared(f"unrecognized resource type (Check): {token}")
    folder, name = owner._classes[token]
    path = owner.file_of(folder, name)
    if path is None or not (body := _class(path, name)):
        raise NotDeclared(f"{token}: the SDK registers it but has no class {name} in {folder}")
    return ResourceType(
        token=token,
        # If a nested type is named `SubnetArgs`, the resource's inputs are named `SubnetInitArgs`.
        inputs=_properties(_class(path, f"{name}InitArgs") or _class(path, f"{name}Args"), folder),
        outputs=_properties(body, folder),
        secrets=frozenset(re.findall(r'"(\w+)"', "".join(_SECRETS.findall(path.read_text(encoding="utf-8"))))),
    )


_SECRETS = re.compile(r"additional_secret_outputs=\[([^\]]*)\]")


@cache
def _function(owner: Sdk, token: str) -> Function:
    _, module, name = token.split(":")
    module = module.split("/")[0]
    folder = owner._folders.get(module) or (owner.root if module == "index" else owner.root / module)
    path = owner.file_of(folder, name)
    result = f"{name[0].upper()}{name[1:]}Result"
    if path is None or not (body := _class(path, result)):
        raise NotDeclared(f"unrecognized function: {token}")
    return Function(token=token, inputs=_arguments(path, folder), outputs=_properties(body, folder))


@cache
def fields(folder: Path, name: str) -> dict[str, Property]:
    """Return the properties of a nested type."""
    for file in ("_inputs.py", "outputs.py"):
        if body := _class(folder / file, name):
            return _properties(body, folder)
    return {}


def has(folder: Path, name: str) -> bool:
    """Return whether a nested type exists, even if it has no properties."""
    return any(_class(folder / file, name) for file in ("_inputs.py", "outputs.py"))


def settable(kind: Type, value: Any) -> Any:
    """Return a value without the properties of nested objects that are outputs only. `kind` is the type of the input.

    The real providers read inputs without them. Source for Azure: `SdkOutputsToSdkInputs` in pulumi/pulumi-azure-native,
    provider/pkg/convert, retrieved 2026-11-29.
    """
    if kind.kind == "list" and kind.item is not None and isinstance(value, list):
        return [settable(kind.item, one) for one in value]
    if kind.kind == "object" and kind.folder is not None and isinstance(value, dict):
        declared = fields(kind.folder, kind.name)
        return {name: settable(declared[name].type, one) for name, one in value.items() if name in declared}
    return value


@cache
def members(folder: Path, name: str) -> tuple[str | float, ...]:
    """Return the values of an enum."""
    body = _class(folder / "_enums.py", name)
    texts = re.findall(r"^    [A-Z][A-Z0-9_]* = (.+)$", body, re.M)
    return tuple(ast.literal_eval(value) for value in texts)


@lru_cache(maxsize=64)
def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _class(path: Path, name: str) -> str:
    """Return the body of one class in a file, or an empty string if it does not exist."""
    text = _text(path)
    start = next((at for mark in (":", "(") if (at := text.find(f"\nclass {name}{mark}")) >= 0), -1)
    if start < 0:
        return ""
    ends = [at for mark in ("\nclass ", "\n@", "\ndef ") if (at := text.find(mark, start + 1)) >= 0]
    return text[start : min(ends, default=len(text))]


_GETTER = re.compile(
    r'^    @pulumi\.getter(?:\(name="(?P<wire>[^"]+)"\))?\n'
    r"(?:(?!    def ).*\n)*?"
    r"    def (?P<name>\w+)\(self\) -> (?P<type>.+):\n",
    re.M,
)
_DOC = re.compile(r'\s*"""(.*?)"""', re.S)


def _properties(body: str, folder: Path) -> dict[str, Property]:
    properties: dict[str, Property] = {}
    for match in _GETTER.finditer(body):
        name = match["wire"] or match["name"]
        doc = _DOC.match(body, match.end("type") + 1)
        properties[name] = Property(name, _type(match["type"], folder), doc.group(1).strip() if doc else "")
    return properties


def _arguments(path: Path, folder: Path) -> dict[str, Property]:
    """Return the arguments of a function, with the protocol names from the body and the types from the signature.

    Reads the signature of the `_output` form, where a double `Optional` means optional and a single one means required.
    """
    text = _text(path)
    names = dict((python, wire) for wire, python in re.findall(r"__args__\['([^']+)'\] = (\w+)", text))
    signature = re.search(r"^def \w+_output\((.*?)\)(?: -> [^\n]+)?:\n", text, re.M | re.S)
    if not signature:
        return {}
    function = ast.parse(f"def f({signature.group(1)}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments: dict[str, Property] = {}
    for argument in [*function.args.args, *function.args.kwonlyargs]:
        if (wire := names.get(argument.arg)) and argument.annotation is not None:
            kind = _of(argument.annotation, folder)
            optional = ast.unparse(argument.annotation).count("Optional[") > 1
            arguments[wire] = Property(wire, replace(kind, optional=optional))
    return arguments


@cache
def _type(annotation: str, folder: Path) -> Type:
    return _of(ast.parse(annotation, mode="eval").body, folder)


_SCALARS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "Any": "any",
    "Asset": "asset",
    "Archive": "asset",
}


def _of(node: ast.expr, folder: Path) -> Type:
    if isinstance(node, ast.Attribute):
        return Type(_SCALARS.get(node.attr, "any"))
    if isinstance(node, ast.Name):
        return Type(_SCALARS.get(node.id, "any"))
    if isinstance(node, ast.Constant):
        return _named(str(node.value), folder)
    if not isinstance(node, ast.Subscript):
        return Type("any")
    outer = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Optional":
        held = _of(inner[0], folder)
        return Type(held.kind, held.item, held.options, held.name, held.folder, held.loose, optional=True)
    if outer in ("Sequence", "List", "list"):
        return Type("list", item=_of(inner[0], folder))
    if outer in ("Mapping", "Dict", "dict"):
        return Type("map", item=_of(inner[-1], folder))
    if outer == "Union":
        return _union([_of(item, folder) for item in inner])
    return _of(inner[0], folder)  # pulumi.Input, pulumi.Output, Awaitable


def _union(options: list[Type]) -> Type:
    """Parse a union. Forms of one object (class, typed dict, output) become one type. An enum combined with a string
    becomes loose."""
    kinds: list[Type] = []
    for option in options:
        twin = option.kind == "object" and any(
            known.kind == "object"
            and known.name.removesuffix("Args") == option.name.removesuffix("Dict").removesuffix("Args")
            for known in kinds
        )
        if option not in kinds and not twin:
            kinds.append(option)
    enums = [kind for kind in kinds if kind.kind == "enum"]
    if len(enums) == 1 and len(kinds) == 2 and any(kind.kind in ("str", "float", "int") for kind in kinds):
        return Type("enum", name=enums[0].name, folder=enums[0].folder, loose=True)
    return kinds[0] if len(kinds) == 1 else Type("union", options=tuple(kinds))


def _named(name: str, folder: Path) -> Type:
    """Resolve a quoted class name in this module, in its `outputs`, or in another module
    (`_iam.PolicyStatementArgs`)."""
    *prefix, name = name.split(".")
    if prefix and prefix[0] not in ("outputs", "_inputs", "_enums"):
        other = prefix[0].removeprefix("_")
        folder = folder.parent if other.startswith("root") else folder.parent / other
    if not name.endswith("Args") and prefix[:1] != ["outputs"] and members(folder, name):
        return Type("enum", name=name, folder=folder)
    return Type("object", name=name.removesuffix("Dict"), folder=folder)

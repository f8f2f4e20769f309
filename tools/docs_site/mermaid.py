"""Adds the diagrams of the pages to the documentation site: the directive `mermaid`, and the program that draws it in the browser.

`fetch()` copies Mermaid from its npm package into the site, so the pages load no files from other hosts and can be read from a folder.
Mermaid has a form for `import` and one for a plain script. The site uses the script, because browsers do not import modules from files.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

VERSION = "11.12.1"
SHA512 = "UlIZrRariB11TY1RtTgUWp65tphtBv4CSq7vyS2ZZ2TgoMjs2nloq+wFqxiwcxlhHUvs7DPGgMjs2aeQxz5h9g=="
"""`dist.integrity` of the package in npm's registry, retrieved 2026-11-27."""
FILES = {"package/dist/mermaid.min.js": "mermaid.min.js", "package/LICENSE": "mermaid.LICENSE"}
KEPT = Path(sys.prefix) / "mermaid" / VERSION
"""In the environment of the site's tools, so that a build downloads the package once."""


def fetch() -> Path:
    """Return the folder with Mermaid and its license (MIT). Exits with a message if npm does not provide the pinned package."""
    if all((KEPT / name).is_file() for name in FILES.values()):
        return KEPT
    with tempfile.TemporaryDirectory() as made:
        words = ["npm", "pack", f"mermaid@{VERSION}", "--silent", "--pack-destination", made]
        try:
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=300, cwd=made)
        except (OSError, subprocess.SubprocessError) as problem:
            sys.exit(
                f"mermaid {VERSION}, which draws the diagrams, cannot be fetched ({problem}); install Node.js with npm, and check the access to npm's registry"
            )
        package = Path(made, f"mermaid-{VERSION}.tgz")
        found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if found != SHA512:
            sys.exit(f"npm provided mermaid {VERSION} with the SHA-512 {found}; expected: {SHA512}")
        KEPT.mkdir(parents=True, exist_ok=True)
        with tarfile.open(package) as archive:
            for member, name in FILES.items():
                source = archive.extractfile(member)
                assert source is not None
                with source, Path(made, name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                shutil.move(Path(made, name), KEPT / name)
    return KEPT


class diagram(nodes.General, nodes.Element):
    """A diagram in Mermaid's notation, in the attribute `code`."""


class Mermaid(Directive):
    """The block `mermaid` of a page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return [diagram("", code="\n".join(self.content))]


def visit(translator, node) -> None:
    """Write the code, which the browser replaces with the diagram."""
    translator.body.append(f'<pre class="mermaid" tabindex="0">{translator.encode(node["code"])}</pre>\n')
    raise nodes.SkipNode


def add_scripts(app, name, template, context, tree) -> None:
    """Load the scripts only in pages with a diagram, because Mermaid is large."""
    if tree is not None and tree.next_node(diagram):
        for file in ("mermaid.min.js", "diagrams.js"):
            app.add_js_file(file, loading_method="defer")


def setup(app) -> dict[str, bool]:
    """Register the directive."""
    app.add_node(diagram, html=(visit, None))
    app.add_directive("mermaid", Mermaid)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True}

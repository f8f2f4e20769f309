#!/usr/bin/env python3
"""Writes the sources of the documentation site: `python tools/docs_site/stage.py FOLDER`.

The sources are the pages of this checkout and the reference from `generated.py`. `conf.py` configures Sphinx, which builds
the site from the sources. The navigation of the site follows `docs/README.md` and `docs/internals/decisions/README.md`.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from generated import pages

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages in the root folder besides `README.md`, which is the home page of the site."""
CONSOLE = re.compile(r"^(?P<indent> *)```console\n(?P<lines>.*?)^(?P=indent)```", re.M | re.S)
LINK = re.compile(r"\]\((?P<page>[\w./-]+\.md)(?:#[\w-]+)?\)")


def stage(folder: Path) -> None:
    """Write the sources to the folder, which must not exist."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in PROJECT:
        shutil.copy(ROOT / name, folder)
    for page in folder.rglob("*.md"):
        page.write_text(commands_as_bash(page.read_text(encoding="utf-8")), encoding="utf-8")
    generated = pages()
    for name, text in generated.items():
        (folder / "reference" / name).parent.mkdir(exist_ok=True)
        (folder / "reference" / name).write_text(text, encoding="utf-8")
    sections = {
        "Overview": ["docs/README.md"],
        **{title: [f"docs/{page}" for page in listed] for title, listed in sections_of("docs/README.md").items()},
        "Generated reference": [f"reference/{name}" for name in generated],
        "Project": list(PROJECT),
    }
    home = commands_as_bash((ROOT / "README.md").read_text(encoding="utf-8"))
    (folder / "index.md").write_text(home + "".join(map(tree, sections, sections.values())), encoding="utf-8")
    decisions = folder / "docs" / "internals" / "decisions" / "README.md"
    listed = [page for section in sections_of("docs/internals/decisions/README.md").values() for page in section]
    decisions.write_text(decisions.read_text(encoding="utf-8") + tree("", listed), encoding="utf-8")


def commands_as_bash(text: str) -> str:
    """Return a page in which blocks of commands are Bash, with the comment above its command.

    Sphinx highlights a line of a `console` block without a prompt as output, which the copy button leaves out. A comment after a command is
    outside of a narrow screen.
    """
    return CONSOLE.sub(_as_bash, text)


def _as_bash(block: re.Match[str]) -> str:
    if re.search(r"^ *\$ ", block["lines"], re.M):
        return block[0]
    lines = re.sub(r"^( *)(\S.*?) +(# .*)$", r"\1\3\n\1\2", block["lines"], flags=re.M)
    return f"{block['indent']}```bash\n{lines}{block['indent']}```"


def sections_of(page: str) -> dict[str, list[str]]:
    """Return the pages that the lists and tables of a page link to, by the heading above them."""
    sections: dict[str, list[str]] = {}
    title = ""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith(("|", "- [")) and (listed := LINK.findall(line)):
            sections.setdefault(title, []).extend(listed)
    return sections


def tree(caption: str, listed: list[str]) -> str:
    """Return the directive that adds pages to the navigation, below a caption if there is one."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *(name.removesuffix(".md") for name in listed), "```", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    stage(Path(sys.argv[1]))

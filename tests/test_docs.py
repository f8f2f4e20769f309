"""The index of `docs/internals/architecture.md` and the links of all pages point at what exists."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| `(?P<file>[^`|]+)` \| `(?P<name>[^`|]+)` \|$", re.M)
INDEX = [
    match.groupdict()
    for match in ROW.finditer((ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8"))
]
LIMIT = 3000
"""Words of a page."""
PATH_OF_PAGE = re.compile(r"`(docs/[\w./-]+\.md)`")
PATH_OF_CODE = re.compile(r"`((?:gpuinfra/(?!_shipped)|docs/|tests/|rehearsal/|stacks/)[a-z0-9_./-]+)`")
"""Only for pages that describe the present code: decisions and guides for contributors also name files that do not exist."""
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_each_question_of_the_index_has_a_file_and_a_name() -> None:
    """Each row of the index names one file and one name, and at least 20 questions have a row."""
    questions = {row["question"] for row in INDEX}
    assert len(questions) >= 20
    assert (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8").count("? |") == len(questions)


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row["file"])
def test_file_of_a_question_defines_the_name(row: dict[str, str]) -> None:
    """The file exists and defines the name: a function, class, method, assignment, field or price item."""
    name = re.escape(row["name"])
    text = (ROOT / row["file"]).read_text(encoding="utf-8")
    defined = (
        rf"""^\s*(async )?(def|class) {name}\b|^\s*{name}\b(:.*)? = |^\s*{name}: |^\s*"{name}": |^{name}\(\) \{{"""
    )
    assert re.search(defined, text, re.M), f"{row['file']} does not define {row['name']}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_exist(page: Path) -> None:
    """Relative links and the paths in backticks name existing files."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    code = PATH_OF_CODE if page.parent.name in ("reference", "guides", "start") else PATH_OF_PAGE
    missing += [path for path in code.findall(text) if not (ROOT / path).exists()]
    assert not missing


GUIDES = sorted((ROOT / "docs" / "internals").glob("add*.md"))
FILE_OF_GUIDE = re.compile(r"`((?:gpuinfra|rehearsal|tests|docs)/[\w<>./-]+)(?:::(\w+))?`")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_files_of_a_guide_exist(page: Path) -> None:
    """A guide names only files that exist, tests that are in their file, and programs that can run. A name with `<cloud>` is one for each cloud."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = {
        (path.replace("<cloud>", cloud), name)
        for path, name in FILE_OF_GUIDE.findall(text)
        for cloud in ("aws", "azure", "gcp")
    }
    programs = {
        module.replace(".", "/") + ".py" for module in re.findall(r"`python -m ((?:tests|gpuinfra)[\w.]+)`", text)
    }
    named |= {(program, "__main__") for program in programs}
    assert named
    # The guide to a new cloud adds the files of an example cloud.
    files = {(ROOT / path, name) for path, name in named if "meadow" not in path}
    assert [path for path, _ in files if not path.exists()] == []
    assert [name for path, name in files if name and name not in path.read_text(encoding="utf-8")] == []


def words(text: str) -> int:
    """Number of words, without the lines of tables and other signs."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_no_page_is_too_long() -> None:
    """A page has at most 3,000 words. Split a longer page by task or by cloud."""
    counts = {str(page.relative_to(ROOT)): words(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: count for page, count in counts.items() if count > LIMIT and page != "CHANGELOG.md"} == {}


def test_headings_skip_no_level() -> None:
    """A heading is at most one level below the one before it. The strict build of the site refuses others."""
    skipped = []
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        levels = [0, *(len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE))]
        skipped += [str(page.relative_to(ROOT)) for last, level in pairwise(levels) if level > last + 1]
    assert skipped == []


def test_page_lists_the_stacks_without_a_rehearsed_life_cycle() -> None:
    """`docs/reference/stacks.md` names each shipped stack that no `rehearsal/tests/test_*life.py` rehearses, and no other stack."""
    tests = "".join(path.read_text() for path in (ROOT / "rehearsal/tests").glob("test_*life.py"))
    lived = set(re.findall(r'"((?:aws|azure|gcp)-[\w-]+)"', tests))
    stacks = {path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.*.yaml")}
    (line,) = re.findall(r"^The exceptions are .*$", (ROOT / "docs" / "reference" / "stacks.md").read_text(), re.M)
    assert set(re.findall(r"`((?:aws|azure|gcp)-[\w-]+)`", line)) == stacks - lived
    assert lived <= stacks

"""The documentation site: navigation, links, the generated reference, and the messages on the page about troubleshooting."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.cli import COMMANDS
from gpuinfra.reference.explain import known_checks, known_rules, known_steps
from gpuinfra.reference.fields import all_fields
from gpuinfra_rehearsal.document import report_schema
from tests.report.test_accessibility import SAMPLES, examine

ROOT = Path(__file__).parents[1]
SITE = ROOT / "tools" / "docs_site"
LINK = re.compile(r"\]\(([^)\s]+)\)")
OF_PULUMI = {"passphrase must be set with PULUMI_CONFIG_PASSPHRASE", "the stack is currently locked by"}
"""Messages of Pulumi 3.259 (pkg/secrets/passphrase/manager.go, pkg/backend/diy/lock.go, retrieved 2026-11-26)."""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the site."""
    folder = tmp_path_factory.mktemp("site") / "source"
    subprocess.run([sys.executable, SITE / "stage.py", folder], check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def texts(staged: Path) -> dict[str, str]:
    """The text of each page by name."""
    return {str(page.relative_to(staged)): page.read_text(encoding="utf-8") for page in staged.rglob("*.md")}


def test_navigation_contains_every_page_once(texts: dict[str, str]) -> None:
    """Each page except the home page is in exactly one list of the navigation, and each list contains only pages."""
    listed: list[str] = []
    for page, text in texts.items():
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.M | re.S):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed += [str((Path(page).parent / name).with_suffix(".md")) for name in names]
    assert sorted(listed) == sorted(set(texts) - {"index.md"})
    assert {"docs/README.md", "docs/internals/decisions/README.md", "CHANGELOG.md", "reference/fields.md"} < set(listed)


def test_links_of_the_site_are_alive(staged: Path, texts: dict[str, str]) -> None:
    """Each relative link names a page or file of the site, and each anchor a heading of its page."""
    anchors = {page: _anchors(text) for page, text in texts.items()}
    dead = []
    for page, text in texts.items():
        for link in LINK.findall(_without_code(text)):
            name, _, anchor = link.partition("#")
            target = (staged / page).parent / name if name else staged / page
            if "://" in link:
                continue
            known = anchors.get(str(target.resolve().relative_to(staged.resolve())), set())
            if not target.is_file() or (anchor and anchor not in known):
                dead.append(f"{page}: {link}")
    assert not dead


def test_commands_can_be_copied(texts: dict[str, str]) -> None:
    """On the site, commands are Bash with the comment above, because the copy button leaves out output. Blocks with a prompt stay."""
    console = [
        block for text in texts.values() for block in re.findall(r"^ *```console\n(.*?)^ *```", text, re.M | re.S)
    ]
    assert console
    assert [block for block in console if not re.search(r"^ *\$ ", block, re.M)] == []
    assert (
        "\n# validate a stack; show its topology, software, time and price\ngpuinfra plan aws-p4d\n"
        in texts["docs/reference/commands.md"]
    )
    assert "gpuinfra run aws-p4d -N 2 -- 'echo $NODE_RANK of $NNODES'\n" in texts["docs/reference/commands.md"]
    assert "make rehearse\n" in texts["index.md"]


def test_reference_contains_every_name(texts: dict[str, str]) -> None:
    """Each field, rule, check, step and command has a heading in the generated reference."""
    headings = {page: set(re.findall(r"^##+ (.*)$", text, re.M)) for page, text in texts.items()}
    assert {f"`{path}`" for path in all_fields()} == headings["reference/fields.md"]
    assert {f"`{name}`" for name in known_rules()} == headings["reference/rules.md"]
    titles = {" ".join(entry.title.split()[1:]) for entry in known_checks().values()}
    assert {title.replace("`", "") for title in headings["reference/checks.md"]} == titles
    titles = {entry.title.removeprefix("step ") for entry in known_steps().values()}
    assert headings["reference/steps.md"] == {f"`{title}`" for title in titles}
    assert {f"`gpuinfra {name}`" for name in COMMANDS} < headings["reference/commands.md"]
    assert {f"`{name}`" for name in report_schema()["properties"]} == headings["reference/report.md"]


def test_reference_lists_every_component(texts: dict[str, str]) -> None:
    """Each public component of a cloud has a heading, its arguments with their docstrings, and its outputs. Inherited arguments are included."""
    text = texts["reference/components.md"]
    headings = set(re.findall(r"^### `(.*)`$", text, re.M))
    for cloud in CLOUDS:
        names = {name for name in importlib.import_module(f"gpuinfra.clouds.{cloud}").__all__ if name[0].isupper()}
        documented = {heading.partition(".")[2] for heading in headings if heading.startswith(f"{cloud}.")}
        args = {f"{name}Args" for name in documented}
        assert names - args == documented, cloud
    pool = text.partition("### `aws.NodePool`")[2].partition("### ")[0]
    assert "- `subnet_id`: `pulumi.Input[str]`. Private subnet for all nodes." in pool
    assert "- `bucket`: " in pool
    entries = re.findall(r"^- `\w+`: `[^`]+`(?:, default `[^`]+`)?\.(.*)$", text, re.M)
    assert len(entries) > 200


BUILT_IN = {"Any", "Callable", "ClassVar", "Mapping", "None", "Sequence", "pulumi"}


def test_reference_describes_every_type_of_an_argument(texts: dict[str, str]) -> None:
    """Each class in the type of an argument or field of a component, and each class of a plan, has a section with its fields."""
    text, plan = texts["reference/components.md"], texts["reference/plan.md"]
    planned = set(re.findall(r"^## `(\w+)`$", plan, re.M))
    assert {"Plan", "NetworkPlan", "PoolPlan", "FileSystemPlan", "HandoverPlan", "RecoveryPlan"} < planned
    assert "- `deadline_s`: `int`" in plan.partition("## `HandoverPlan`")[2].partition("## ")[0]
    for cloud in CLOUDS:
        sections = re.findall(rf"^### `{cloud}\.(\w+)`\n(.*?)(?=^##|\Z)", text, re.M | re.S)
        described = {name for name, _ in sections} | planned | BUILT_IN
        types = [kind for _, part in sections for kind in re.findall(r"^- `\w+`: `([^`]+)`", part, re.M)]
        names = {word for kind in types for word in re.findall(r"(?<![.\w\"'])[A-Z]\w+(?![.\w])", kind)}
        assert names - described == set(), cloud
        arguments = [part.partition("Arguments:")[2].partition("Outputs:")[0] for _, part in sections]
        silent = [
            line
            for part in arguments
            for line in re.findall(r"^- `(?!scope`|plan`)\w+`: `[^`]+`(?:, default `[^`]+`)?\.$", part, re.M)
        ]
        assert silent == [], cloud


def test_troubleshooting_messages_are_messages_of_the_code() -> None:
    """The fixed words of each message on the page are in the code of gpuinfra or in the tables of cloud messages."""
    text = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    ours, clouds = text.split("## Messages of the clouds")
    table, connections = clouds.split("## Connections")
    folders = ("gpuinfra", "rehearsal/gpuinfra_rehearsal", "plugin")
    files = [*(file for name in folders for file in (ROOT / name).rglob("*.py")), *(ROOT / "tools").glob("*.py")]
    code = _joined("\n".join(path.read_text(encoding="utf-8") for path in files))
    tables = "".join(path.read_text() for path in (ROOT / "gpuinfra" / "clouds").glob("*/handover/refusals.json"))
    messages = re.findall(r"^### `(.*)`$", ours + connections, re.M)
    told = [message for row in re.findall(r"^\| (`.*?) \|", table, re.M) for message in re.findall(r"`(.*?)`", row)]
    assert (len(messages), len(told)) >= (20, 15)
    assert not [one for one in messages if one not in OF_PULUMI and not _occurs(one, code)]
    assert not [one for one in told if not _occurs(one, tables)]


def build(sources: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site in strict mode, as `make docs` does."""
    prepared = subprocess.run(
        [sys.executable, ROOT / "tools" / "environment.py", "docs"], capture_output=True, text=True, timeout=600
    )
    assert prepared.returncode == 0, prepared.stderr
    words = ["-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-c", SITE, sources, target]
    python = ROOT / ".venv-docs" / "bin" / "python"
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=600)


SEARCHES = {
    "add nodes": "docs/guides/add-nodes",
    "change driver": "docs/guides/change-software",
    "node fails": "docs/guides/failed-node",
    "existing network": "docs/guides/existing-network",
    "own image": "docs/guides/own-images",
    "cost": "docs/guides/cost",
    "slurm": "docs/guides/schedulers",
    "first cluster": "docs/start/first-cluster",
    "fail over": "docs/guides/failover",
}
"""Words of a reader, and the page that must be among the first results."""


def searched(browser: str, site: Path, words: str) -> list[str]:
    """The pages that the search of the site lists, without a repetition, in the order of the results."""
    address = f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}"
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--virtual-time-budget=15000",
    )
    done = subprocess.run(
        [browser, *options, "--dump-dom", address], capture_output=True, text=True, timeout=300, check=True
    )
    results = done.stdout.partition('id="search-results"')[2].partition("</ul>")[0]
    return list(dict.fromkeys(re.findall(r'<a href="([^"?#]+)\.html', results)))


@pytest.mark.long
def test_site_is_built_without_warnings_and_a_dead_link_fails(staged: Path, tmp_path: Path) -> None:
    """The strict build succeeds, diagrams and tables are marked up, and a link to a missing heading fails the build."""
    sources = shutil.copytree(staged, tmp_path / "source")
    first = build(sources, tmp_path / "first")
    assert (first.returncode, first.stderr) == (0, "")
    home = (tmp_path / "first" / "index.html").read_text(encoding="utf-8")
    assert '<pre class="mermaid" tabindex="0">flowchart' in home
    assert loaded_from_other_hosts(tmp_path / "first") == []
    assert "the gpuinfra authors" in home
    if browser := shutil.which("chromium") or shutil.which("google-chrome"):
        for words, page in SEARCHES.items():
            results = searched(browser, tmp_path / "first", words)
            assert page in results[:3], (words, results)
            assert not {"CHANGELOG", "reference/refusals"} & set(results[:5]), (words, results)
    assert "<table" in home
    page = sources / "docs" / "start" / "first-rehearsal.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](../guides/deploying.md#gone)\n", encoding="utf-8")
    second = build(sources, tmp_path / "second")
    assert second.returncode != 0
    assert "gone" in second.stderr


@pytest.mark.long
def test_site_is_accessible(staged: Path, tmp_path: Path) -> None:
    """axe-core finds nothing on pages with text, commands, tables, diagrams and the generated reference, and none scrolls sideways."""
    assert build(staged, tmp_path / "html").returncode == 0
    names = (
        "index",
        "docs/start/first-rehearsal",
        "docs/reference/commands",
        "docs/reference/security",
        "reference/components",
    )
    found = examine([tmp_path / "html" / f"{name}.html" for name in names])
    assert len([one for one in found if "passes" in one]) == SAMPLES * len(names)
    assert [one for one in found if "rule" in one] == []
    assert [one for one in found if one.get("scrolls_sideways") or one.get("other_hosts")] == []


LOADED = (
    re.compile(r"""<(?:script|img|iframe|audio|video|source|embed|input)\b[^>]*?\s(?:src|srcset|data)=["']([^"']+)"""),
    re.compile(
        r"""<link\b(?![^>]*\brel=["']?(?:canonical|author|license|index|search|next|prev)\b)[^>]*?\shref=["']([^"']+)"""
    ),
    re.compile(r"""url\(\s*["']?([^"')]+)"""),
    re.compile(r"""@import\s+["']([^"']+)"""),
    re.compile(r"""\b(?:import|from|fetch|importScripts)\s*\(?\s*["'`]((?:https?:)?//[^"'`]+)"""),
)
"""What a browser loads with a page: the address in HTML, in a style sheet, or in a script."""


def loaded_from_other_hosts(folder: Path) -> list[str]:
    """Files of a site and the addresses on other hosts that a browser loads for them."""
    return [
        f"{file.relative_to(folder)}: {address}"
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".html", ".css", ".js")
        for pattern in LOADED
        for address in pattern.findall(file.read_text(encoding="utf-8"))
        if re.match(r"(?:https?:)?//", address.strip())
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        "<script type='module'>import a from 'https://cdn.example.com/a.mjs';</script>",
        '<link rel="stylesheet" href="//cdn.example.com/a.css">',
        '<img alt="" src="http://example.com/a.png">',
        "<style>@import 'https://example.com/a.css'; b {background: url(https://example.com/a.png)}</style>",
    ],
)
def test_an_address_on_another_host_is_found(text: str, tmp_path: Path) -> None:
    """The search for addresses finds each way to load a file, and ignores links that a reader follows."""
    (tmp_path / "a.html").write_text(
        '<a href="https://example.com">a</a><link rel="canonical" href="https://example.com/">'
    )
    assert loaded_from_other_hosts(tmp_path) == []
    (tmp_path / "a.html").write_text(text)
    assert loaded_from_other_hosts(tmp_path)


def _anchors(text: str) -> set[str]:
    """The anchors of a page, as GitHub derives them from headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", _without_code(text), re.M):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


def _without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def _joined(code: str) -> str:
    """Code in which adjacent strings of one message are joined."""
    return re.sub(r'"\s*\n\s*f?"', "", code)


def _occurs(message: str, where: str) -> bool:
    """Each part of the message between values, which are in capital letters, occurs in the text."""
    parts = [message] if " " not in message else re.split(r"\b(?:[A-Z]+|N)\b", message)
    return all(part.strip(" ;:()") in where for part in parts)

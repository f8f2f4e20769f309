"""Configures Sphinx for the documentation site. `make docs` runs it on the sources that `stage.py` writes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import mermaid

project = "gpuinfra"
copyright = "the gpuinfra authors"
extensions = ["myst_parser", "mermaid", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_title = "gpuinfra"
smartquotes = False  # keeps the hyphens of options, such as --live
html_copy_source = False
html_show_sourcelink = False
html_use_index = False  # the pages define no index terms
templates_path = []
html_static_path = ["static", str(mermaid.fetch())]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4  # links to headings, with the same anchors as on GitHub
myst_fence_as_directive = ["mermaid"]
copybutton_exclude = ".linenos, .gp, .go, .c1"  # a comment after a command is not copied

ACCESSIBILITY = (
    # Sphinx gives the captions of the navigation the role of a heading without its level.
    ('role="heading">', 'role="heading" aria-level="2">'),
    # A block that scrolls sideways must be reachable with the keyboard.
    ('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    # Furo has two landmarks of the same kind without names.
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="Contents of the page" class="toc-drawer'),
)
"""Text of the theme -> the text without a violation that axe-core reports."""


def setup(app):
    """Correct the pages after the build."""
    app.connect("build-finished", corrected)


def corrected(app, error):
    """Replace each text in `ACCESSIBILITY` in all pages."""
    for page in Path(app.outdir).rglob("*.html") if error is None else ():
        text = page.read_text(encoding="utf-8")
        for before, after in ACCESSIBILITY:
            text = text.replace(before, after)
        page.write_text(text, encoding="utf-8")

"""Configures Sphinx for the documentation site. `make docs` runs it on the sources that `stage.py` writes."""

import os

project = "gpuinfra"
extensions = ["myst_parser", "sphinxcontrib.mermaid", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_title = "gpuinfra"
smartquotes = False  # keeps the hyphens of options, such as --live
html_copy_source = False
html_show_sourcelink = False
templates_path = []
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4  # links to headings, with the same anchors as on GitHub
myst_fence_as_directive = ["mermaid"]
copybutton_exclude = ".linenos, .gp, .go, .c1"  # a comment after a command is not copied

# Diagrams are drawn in the browser. By default, pages load Mermaid from jsDelivr; for a site without internet access,
# MERMAID_JS is a path or address on its own server, such as /mermaid.esm.min.mjs.
mermaid_version = "11.12.1"
mermaid_height = "auto"
mermaid_fullscreen_button = "↗"
mermaid_use_local = os.environ.get("MERMAID_JS", "")

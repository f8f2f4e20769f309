"""Runs axe-core on pages: `.venv-pages/bin/python tests/report/axe.py CHROMIUM PAGE...` prints one JSON object per rule that a page violates.

Each page is examined at three widths, in light and dark colors. axe-core runs in the page, so this bypasses the policy
of the page, which allows no script.
"""

from __future__ import annotations

import json
import sys

from axe_playwright_python.sync_playwright import Axe  # pyright: ignore[reportMissingImports]
from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

WIDTHS = (360, 768, 1280)
SCHEMES = ("light", "dark")
DRAWN = "[...document.querySelectorAll('pre.mermaid')].every((one) => one.querySelector('svg'))"
"""Whether each diagram of the documentation site is drawn. True without diagrams."""


def main() -> None:
    """Print a line for each examined sample, and one for each violated rule."""
    chromium, *pages = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    context = browser.new_context(
                        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
                    )
                    tab = context.new_page()
                    others: list[str] = []
                    tab.on("request", lambda sent, found=others: found.append(sent.url))
                    tab.goto(f"file://{page}")
                    tab.wait_for_function(DRAWN)
                    found = Axe().run(tab).response
                    wide = tab.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
                    where = {"page": page.rpartition("/")[2], "width": width, "scheme": scheme}
                    of_hosts = [url for url in others if not url.startswith(("file:", "data:", "blob:"))]
                    summary = {"passes": len(found["passes"]), "scrolls_sideways": wide, "other_hosts": of_hosts}
                    print(json.dumps({**where, **summary}))
                    for rule in found["violations"]:
                        shown = [node["html"][:200] for node in rule["nodes"][:3]]
                        print(json.dumps({**where, "rule": rule["id"], "impact": rule["impact"], "elements": shown}))
                    context.close()
        browser.close()


if __name__ == "__main__":
    main()

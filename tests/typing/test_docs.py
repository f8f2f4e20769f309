"""The Python programs in the documentation pass the type checker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def programs() -> dict[str, str]:
    """Page and line -> program. A block with a path, such as those in `docs/internals/adding-a-cloud.md`, is a part of a package and no program."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 2
            found[f"{page.relative_to(ROOT)}:{line}"] = match[1]
    return found


def test_programs_in_the_documentation_pass_the_type_checker(tmp_path: Path) -> None:
    """The type checker accepts each program as it is printed on its page."""
    checker = Path(sys.executable).parent / "basedpyright"
    names = {}
    for number, (place, program) in enumerate(programs().items()):
        file = tmp_path / f"program_{number}.py"
        file.write_text(program, encoding="utf-8")
        names[file.name] = place
    assert {place.partition(":")[0] for place in names.values()} >= {
        "docs/reference/declaring.md",
        "docs/reference/aws.md",
        "docs/reference/azure.md",
        "docs/reference/gcp.md",
    }
    words = [checker, "--outputjson", "--level", "error", *(str(tmp_path / name) for name in names)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    result = json.loads(done.stdout)
    assert result["summary"]["filesAnalyzed"] == len(names)
    wrong = [
        f"{names[Path(one['file']).name]} + {one['range']['start']['line']}: {one['message']}"
        for one in result["generalDiagnostics"]
    ]
    assert wrong == []

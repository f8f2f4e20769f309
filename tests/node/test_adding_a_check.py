from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.node.healthy import JOURNAL, P4D, record

ROOT = Path(__file__).parents[2]
JUDGE = """
import json, sys
from copy_of_node.checks import ALL
from copy_of_node.judge import judge, verdict
pool, journal, clocks = json.load(sys.stdin)
new = ALL["P6"]
pool["required"] = [check.id for check in (new,) if check.applies(pool) and not check.skipped(pool)]
results = [judge({"clock": clock}, pool, journal=journal) for clock in clocks]
json.dump([list(ALL)[:6], [(checks[0]["outcome"], verdict(checks, pool).verified) for checks in results]], sys.stdout)
"""


def test_the_guide_adds_a_check(tmp_path: Path) -> None:
    """With the class and the probe of add-a-check.md, and no other file, pools require the new check and it judges nodes."""
    copy = tmp_path / "copy_of_node"
    shutil.copytree(ROOT / "gpuinfra" / "node", copy, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "internals" / "add-a-check.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module, probes = copy / "checks" / "platform.py", copy / "probes.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n\n" + textwrap.dedent(block), encoding="utf-8")
    argv = ["timedatectl", "show", "-p", "NTPSynchronized", "--value"]
    probes.write_text(
        probes.read_text(encoding="utf-8") + f'\nPROBES["clock"] = Probe({tuple(argv)})\n', encoding="utf-8"
    )
    clocks = [record(argv, text) for text in ("yes\n", "no\n")]
    done = subprocess.run(
        [sys.executable, "-c", JUDGE],
        input=json.dumps([P4D, JOURNAL, clocks]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=300,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == [["P1", "P2", "P3", "P4", "P5", "P6"], [["pass", True], ["fail", False]]]

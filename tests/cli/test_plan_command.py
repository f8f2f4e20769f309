from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "gpuinfra", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
        timeout=300,
    )


GOOD = (ROOT / "stacks/Pulumi.aws-p4d.yaml").read_text()

WRONG = {
    "machine": (
        GOOD.replace("p4d.24xlarge", "p4d.24xlrage"),
        ["pools[0].machine is 'p4d.24xlrage'", "did you mean p4d.24xlarge?"],
    ),
    "count": (
        GOOD.replace("count: 2}\n    storage", "count: -1}\n    storage"),
        ["pools[0].capacity[1].count is -1", "0 or more"],
    ),
    "field": (GOOD.replace("mount: /scratch", "mont: /scratch"), ["storage[0].mont", "did you mean mount?"]),
    "unit": (
        GOOD.replace("capacity_gib: 4800", "capacity_gib: 4.8TiB"),
        ["storage[0].capacity_gib is '4.8TiB'", "whole number"],
    ),
    "region": (
        GOOD.replace("region: us-east-1", "region: us-esat-1"),
        ["where.region is 'us-esat-1'", "did you mean us-east-1?"],
    ),
    "pools": (GOOD.replace("pools:", "poools:"), [":7: error: poools is not a known field", "did you mean pools?"]),
    "required": (GOOD.replace("machine:", "machne:"), ["pools[0].machne", "did you mean machine?"]),
    "where": (
        GOOD.replace("aws, region: us-east-1", "aws, region: us-esat-1"),
        [":6: error: where.region is 'us-esat-1'", "did you mean us-east-1?"],
    ),
    "provider": (
        GOOD.replace("aws:region: us-east-1", "aws:region: us-esat-1"),
        [":3: error: aws:region is 'us-esat-1', but where.region is 'us-east-1'", "did you mean us-east-1?"],
    ),
    "yaml": (GOOD.replace("count: 2}", "count: 2", 1), ["not valid YAML", "line", "column"]),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_an_error_in_a_stack_file_is_one_message_and_exit_code_1(name: str, tmp_path: Path) -> None:
    """Each error has exit code 1 and one message with path, value, what is allowed and the nearest word, without a traceback."""
    text, words = WRONG[name]
    path = tmp_path / "Pulumi.try.yaml"
    path.write_text(text)
    done = _run("plan", str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in errors[0]
    assert str(path) in errors[0]
    assert "Traceback" not in done.stderr
    answer = json.loads(_run("plan", str(path), "--json").stdout)
    assert answer["ok"] is False
    assert answer["plan"] is None
    rules = [finding["rule"] for finding in answer["findings"] if finding["level"] != "error"]
    assert set(rules) <= {"budget_has_recipients", "identifier_is_not_an_example"}, "an error brings no warning with it"


def test_plan_text_shows_topology_and_price() -> None:
    """The text names nodes, groups, addresses, price and retained resources."""
    done = _run("plan", "aws-p4d", "--why")
    assert done.returncode == 0, done.stderr
    for word in ("4 nodes, 32 GPUs", "gpu-reserved-0", "10.64.0.0/16", "USD an hour", "destroy retains", "11 of 16"):
        assert word in done.stdout


def test_plan_text_marks_estimates_and_lists_usage() -> None:
    """An estimate is marked, the plan counts the estimates and names the command with their reasons, and usage has its price per unit."""
    text = _run("plan", "azure-ndv4").stdout
    assert "(estimate)" in text
    assert "number of these prices that are estimates: 2; `gpuinfra prices STACK` shows the reason" in text
    assert "not included: traffic through NAT gateways: 0.045 USD per GB" in text
    assert "at least" not in text[text.index("\nprice ") :].splitlines()[1]


def test_json_has_the_documented_keys() -> None:
    """`--json` has the documented keys only, and the same output for the same day."""
    first, second = (_run("plan", "aws-p4d", "--json", "--on", "2026-11-21").stdout for _ in range(2))
    assert first == second
    answer = json.loads(first)
    documented = (ROOT / "docs/reference/plan-json.md").read_text()
    assert answer["schema"] == "gpuinfra.plan/1"
    for key in (*answer, *answer["plan"], *answer["cost"]):
        assert f"`{key}`" in documented, key
    assert answer["resources"]["aws:autoscaling/group:Group"] == 2
    assert answer["software"]["gpu"]["DRIVER_BRANCH"] == "595"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_is_self_contained_and_escapes(tmp_path: Path) -> None:
    """`--html` writes a page without scripts or external resources, and text of the declaration stays text."""
    path, page = tmp_path / "Pulumi.try.yaml", tmp_path / "plan.html"
    path.write_text(
        GOOD.replace("storage:", "tags: {team: '<script>alert(1)</script>'}\n    storage:").replace(
            "bucket: auto", "bucket: '<b>x'"
        )
    )
    assert _run("plan", str(path), "--html", str(page)).returncode == 1
    parsed = _Page()
    parsed.feed(page.read_text())
    assert "script" not in parsed.tags
    path.write_text(GOOD)
    assert _run("plan", str(path), "--html", str(page)).returncode == 0
    parsed.feed(page.read_text())
    assert "script" not in parsed.tags
    assert parsed.outside == []
    assert "USD an hour" in page.read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("plan", "nowhere"), 2, "stack 'nowhere' does not exist"),
        (("plan", "no/such/file.yaml"), 2, "does not exist"),
        (("plan", "aws-p4d", "--on", "soon"), 2, "--on is 'soon'"),
        (("plan",), 2, "STACK|FILE"),
        (("plan", "aws-p4d", "--prices", "no.yaml"), 1, "cannot be read"),
        (("plan", "aws-p4d", "--html", "/proc/x/y"), 2, "cannot be written"),
        (("catalog", "p4d.24xlrage"), 2, "did you mean p4d.24xlarge?"),
        (("catalog", "m5.xlarge"), 2, "did you mean m7i.xlarge?"),
        (("catalog", "p4d.24xlarge", "--arch", "arm64"), 2, "no machine type matches all options"),
        (
            ("catalog", "p4d.24xlarge", "--region", "eu-north-1"),
            2,
            "eu-north-1 does not offer p4d.24xlarge; the catalog lists it in ",
        ),
        (
            ("catalog", "P4D.24xlarge", "--arch", "arm64", "--region", "eu-north-1"),
            2,
            "no machine type matches all options",
        ),
        (("prices", "m5.xlarge"), 2, "did you mean m7i.xlarge?"),
        (("catalog", "--gpu", "H10000"), 2, "GPU 'H10000' is not in the catalog"),
        (("explain", "capcity"), 2, "did you mean"),
    ],
)
def test_a_usage_error_is_one_message(words: tuple[str, ...], code: int, message: str) -> None:
    """A usage error ends with the documented exit code and one message, without a traceback."""
    done = _run(*words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_catalog_shows_prices_with_sources() -> None:
    """`catalog` lists machines of a GPU on all clouds; one machine shows prices with dates and sources."""
    table = _run("catalog", "--gpu", "H100").stdout
    assert "p5.48xlarge" in table
    assert "Standard_ND96isr_H100_v5" in table
    assert "a3-megagpu-8g" in table
    assert "p4d" not in table
    one = _run("catalog", "p4d.24xlarge").stdout
    assert "21.96 USD/h (2026-07-28" in one
    assert "us-east-1: use1-az1" in one
    machines = json.loads(_run("catalog", "--cloud", "aws", "--json").stdout)["machines"]
    assert {machine["cloud"] for machine in machines} == {"aws"}


def test_catalog_shows_and_filters_architectures() -> None:
    """Each row has the architecture, and `--arch` lists only machine types with it."""
    lines = _run("catalog").stdout.splitlines()
    assert lines[0].split()[-1] == "arch"
    assert {line.split()[-1] for line in lines[1 : lines.index("")]} == {"x86_64", "arm64"}
    arm = _run("catalog", "--arch", "arm64").stdout
    assert "p6e-gb200.36xlarge" in arm
    assert "x86_64" not in arm
    assert "arm64" not in _run("catalog", "--arch", "x86_64").stdout


def test_schema_and_explain_answer() -> None:
    """`schema` prints the shipped schema, or the schema of the package; `explain` explains a field, a rule and a check."""
    assert json.loads(_run("schema").stdout)["title"] == "gpuinfra stack file"
    assert "gpuinfra:index:GpuCluster" in json.loads(_run("schema", "--package").stdout)["resources"]
    assert "limits   0 to 100,000" in _run("explain", "pools.capacity.count").stdout
    assert "reservation" in _run("explain", "reservation_covers_pool").stdout
    assert "PCIe" in _run("explain", "G3").stdout


def test_a_cold_plan_loads_no_cloud_sdk() -> None:
    """`gpuinfra plan --json` imports no engine, cloud SDK, network module or table library."""
    code = (
        "import sys\n"
        "from gpuinfra.cli import main\n"
        "main(['plan', 'aws-p4d', '--json'])\n"
        "heavy = {'pulumi', 'pulumi_aws', 'boto3', 'botocore', 'rich', 'grpc', 'paramiko', 'ssl', 'http.client', 'jinja2'} & set(sys.modules)\n"
        "print('loaded', sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert "loaded []" in done.stderr, done.stderr

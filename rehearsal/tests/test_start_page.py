"""The commands of `docs/start/first-rehearsal.md`, in the order of the page, in an empty folder and with the real engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuinfra.engine.keep import cache_folder
from tests.test_docs_blocks import LINES

from .conftest import command, run

NOT_HERE = {"make", "source"}
"""Commands that install gpuinfra in a clone. The tests run in such an installation."""
STEPS = [
    words
    for page, words in LINES
    if page == "docs/start/first-rehearsal.md" and words[0] not in NOT_HERE and words[1:] != ["init"]
]


@pytest.mark.usefixtures("needs_nodes")
def test_the_ten_minute_page_works_as_written(tmp_path: Path) -> None:
    """A new user gets a stack, a plan, a diagram, a rehearsal that finds the broken node, a rehearsal that succeeds, and a clone."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "GPUINFRA_CACHE": str(cache_folder())}
    codes = {}
    for words in STEPS:
        given = command(*words[1:])
        if words[1:3] == ["rehearse", "up"] and "--fault" not in words:
            given += ["--deadline", "1200s"]
        done = run(given, tmp_path, cwd=tmp_path, env=environment)
        codes[" ".join(words[1:])] = done.code
        if "--fault" in words:
            assert "gpu-1" in done.out
            assert "the driver lists 7 of 8 GPUs" in done.out
        else:
            assert done.code == 0, (words, done.out + done.err)
    assert [words for words, code in codes.items() if code] == [
        "rehearse up train --fault node:gpu-1:gpu-missing",
    ]
    assert "<svg" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert (tmp_path / "train.svg").is_file()
    assert (tmp_path / ".rehearsal" / "train" / "report.html").is_file()
    assert (tmp_path / "Pulumi.train-us-west-2.yaml").is_file()
    assert (home / ".bashrc").is_file()

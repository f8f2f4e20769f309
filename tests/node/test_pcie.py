from __future__ import annotations

from pathlib import Path

from gpuinfra.node.pcie import counters

SUMS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}


def device(folder: Path, address: str, kind: str, **errors: int) -> None:
    """A PCI device with the counters that the kernel shows, or without files if the host handles errors."""
    place = folder / address
    place.mkdir()
    (place / "class").write_text(kind + "\n")
    for name, value in errors.items():
        rows = f"RxErr 0\nBadTLP {value}\nTimeout 0\nTOTAL_ERR_{SUMS[name]} {value}\n"
        (place / f"aer_dev_{name}").write_text(rows)


def test_devices_with_errors_are_listed(tmp_path: Path) -> None:
    """GPUs, interfaces, disks and bridges with counters are counted, and those with errors are listed with all sums."""
    device(tmp_path, "0000:10:1c.0", "0x030200", correctable=7, nonfatal=0, fatal=0)
    device(tmp_path, "0000:10:1d.0", "0x030200", correctable=0, nonfatal=0, fatal=0)
    device(tmp_path, "0000:20:00.0", "0x060400", correctable=0, nonfatal=2, fatal=1)
    device(tmp_path, "0000:30:00.0", "0x010802")
    device(tmp_path, "0000:40:00.0", "0x0c0330", correctable=99)
    found = counters(tmp_path)
    assert found["counted"] == 3
    assert found["devices"] == [
        {"device": "0000:10:1c.0", "class": "0x030200", "correctable": 7, "nonfatal": 0, "fatal": 0},
        {"device": "0000:20:00.0", "class": "0x060400", "correctable": 0, "nonfatal": 2, "fatal": 1},
    ]


def test_a_machine_without_counters_has_an_empty_list(tmp_path: Path) -> None:
    """In many virtual machines the host handles the errors, and the kernel has no files."""
    device(tmp_path, "0000:10:1c.0", "0x030200")
    assert counters(tmp_path) == {"schema": "gpuinfra.pcie/1", "counted": 0, "devices": []}
    assert counters(tmp_path / "none")["devices"] == []


def test_an_unreadable_counter_is_left_out(tmp_path: Path) -> None:
    """A file in another format is not a number of errors."""
    device(tmp_path, "0000:10:1c.0", "0x030200", fatal=0)
    (tmp_path / "0000:10:1c.0/aer_dev_fatal").write_text("no sum\n")
    assert counters(tmp_path)["counted"] == 0

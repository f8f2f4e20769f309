"""systemctl, systemd-run, reboot and shutdown: clients of the node's init."""

from __future__ import annotations

import os
import sys

from .state import RUN, State, dumps, fail, link, loads, units
from .unitfile import disable, drop_ins, enable, find, full_name, is_enabled, load, masked


def request(message: State) -> State:
    """Send a message to init and wait for the response."""
    import socket

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(RUN + "/init.sock")
        connection.sendall(dumps(message).replace("\n", " ").encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            part = connection.recv(65536)
            if not part:
                break
            data += part
    finally:
        connection.close()
    return loads(data.decode()) if data else {}  # type: ignore[return-value]


def systemctl(argv: list[str]) -> int:
    """The actions that bootstrap steps and units use."""
    flags = [word for word in argv if word.startswith("-")]
    words = [word for word in argv if not word.startswith("-")]
    properties = [word.partition("=")[2] for word in flags if word.startswith(("--property=", "-p="))]
    if "-p" in flags and words[1:]:
        place = argv.index("-p")
        properties.append(argv[place + 1])
        words.remove(argv[place + 1])
    action, names = (words[0], words[1:]) if words else ("list-units", [])
    quiet = any(flag in ("-q", "--quiet") for flag in flags)
    if action in ("is-active", "is-failed"):
        return _is(action, names, quiet)
    if action == "is-enabled":
        answers = [is_enabled(full_name(name)) for name in names]
        for name, answer in zip(names, answers, strict=True):
            if answer == "not-found":
                sys.stderr.write(f"Failed to get unit file state for {full_name(name)}: No such file or directory\n")
            elif not quiet:
                sys.stdout.write(answer + "\n")
        return 0 if any(answer in ("enabled", "static") for answer in answers) else 1
    if action in ("start", "stop", "restart", "try-restart", "reload", "reload-or-restart", "isolate"):
        return _run(action, [full_name(name) for name in names], wait="--no-block" not in flags)
    if action in ("enable", "disable", "reenable", "preset", "mask", "unmask"):
        return _install(action, [full_name(name) for name in names], now="--now" in flags)
    if action in ("reboot", "poweroff", "halt"):
        request({"do": "reboot" if action == "reboot" else "poweroff"})
        return 0
    if action in ("daemon-reload", "daemon-reexec", "set-default", "edit"):
        return 0
    if action == "reset-failed":
        request({"do": "reset-failed", "units": [full_name(name) for name in names]})
        return 0
    if action == "show":
        return _show(names, properties, "--value" in flags)
    if action == "status":
        return _status(names)
    if action == "cat":
        for name in names:
            path = find(full_name(name))
            if path is None:
                return fail(f"No files found for {full_name(name)}.")
            for path_of_file in (path, *drop_ins(full_name(name))):
                with open(path_of_file, encoding="utf-8") as file:
                    sys.stdout.write(f"# {path_of_file}\n{file.read()}\n")
        return 0
    if action == "add-wants":
        for name in names[1:]:
            unit = find(full_name(name))
            if unit is None:
                return fail(f"Failed to add dependency on unit: Unit file {full_name(name)} does not exist.")
            path = f"/etc/systemd/system/{names[0]}.wants/{full_name(name)}"
            if not os.path.lexists(path):
                link(unit, path)
                sys.stderr.write(f"Created symlink {path} → {unit}.\n")
        return 0
    if action == "is-system-running":
        failed = any(state.get("active") == "failed" for state in units().values())
        sys.stdout.write("degraded\n" if failed else "running\n")
        return 1 if failed else 0
    if action in ("list-units", "list-timers", "list-unit-files", "list-jobs"):
        return _list(action, names, failed="--failed" in flags or "--state=failed" in flags)
    return fail(f"Unknown command verb {action}.")


def systemd_run(argv: list[str]) -> int:
    """Run a command as a transient unit."""
    import time

    command = [word for word in argv if not word.startswith("-")]
    name = next((word.partition("=")[2] for word in argv if word.startswith("--unit=")), f"run-u{int(time.time())}")
    from .state import write_file

    write_file(
        f"/run/systemd/system/{full_name(name)}", "[Service]\nType=oneshot\nExecStart=" + " ".join(command) + "\n"
    )
    return _run("start", [full_name(name)], wait="--no-block" not in argv)


def reboot(argv: list[str]) -> int:
    """`reboot`, and `shutdown -r now`."""
    del argv
    request({"do": "reboot"})
    return 0


def shutdown(argv: list[str]) -> int:
    """`shutdown [-r|-h] now`, and `poweroff`."""
    if "-c" in argv:
        return 0
    request({"do": "reboot" if "-r" in argv or "--reboot" in argv else "poweroff"})
    return 0


def _run(action: str, names: list[str], wait: bool) -> int:
    if action == "stop":
        request({"do": "stop", "units": names})
        return 0
    if action == "try-restart":
        names = [name for name in names if units().get(name, {}).get("active") == "active"]
    answer = request({"do": "start" if action in ("start", "isolate") else "restart", "units": names, "wait": wait})
    worst = 0
    for name, result in answer.get("results", {}).items():
        if result == "not-found":
            worst = fail(f"Failed to {action} {name}: Unit {name} not found.", 5)
        elif result == "masked":
            worst = fail(f"Failed to {action} {name}: Unit {name} is masked.", 1)
        elif result in ("failed", "dependency", "canceled"):
            sys.stderr.write(
                f'Job for {name} failed. See "systemctl status {name}" and "journalctl -xeu {name}" for details.\n'
            )
            worst = 1
    if "error" in answer:
        worst = fail(str(answer["error"]))
    return worst


def _install(action: str, names: list[str], now: bool) -> int:
    for name in names:
        if action in ("mask", "unmask"):
            path = f"/etc/systemd/system/{name}"
            if action == "mask" and not masked(name):
                if os.path.lexists(path):
                    return fail(f"Failed to mask unit: File {path} already exists.")
                os.symlink("/dev/null", path)
                sys.stdout.write(f"Created symlink {path} → /dev/null.\n")
            elif action == "unmask" and masked(name):
                os.unlink(path)
            continue
        if masked(name):
            return fail(f"Failed to {action} unit: Unit file /etc/systemd/system/{name} is masked.")
        if action != "disable" and load(name) is None:
            return fail(f"Failed to {action} unit: Unit file {name} does not exist.")
        lines = disable(name) if action in ("disable", "reenable") else []
        if action != "disable":
            lines += enable(name)
        sys.stderr.write("".join(line + "\n" for line in lines))
    if now and action in ("enable", "reenable"):
        return _run("start", names, wait=True)
    if now and action in ("disable", "mask"):
        request({"do": "stop", "units": names})
    return 0


def _is(action: str, names: list[str], quiet: bool) -> int:
    states = units()
    active = [states.get(full_name(name), {}).get("active", "inactive") for name in names]
    if not quiet:
        sys.stdout.write("".join(word + "\n" for word in active))
    if action == "is-failed":
        return 0 if "failed" in active else 1
    return 0 if "active" in active else 3


def _show(names: list[str], properties: list[str], bare: bool) -> int:
    states = units()
    fields = [item for value in properties for item in value.split(",")]
    for name in names or [""]:
        full = full_name(name) if name else ""
        state = states.get(full, {})
        unit = load(full) if full else None
        values = {
            "Id": full,
            "LoadState": "masked" if full and masked(full) else "loaded" if unit else "not-found",
            "ActiveState": state.get("active", "inactive"),
            "SubState": state.get("sub", "dead"),
            "Result": state.get("result", "success"),
            "ExecMainStatus": str(state.get("status", 0)),
            "MainPID": str(state.get("pid", 0)),
            "UnitFileState": is_enabled(full) if full else "",
            "FragmentPath": unit.path if unit else "",
            "NRestarts": str(len(state.get("restarts", []))),
        }
        for key in fields or values:
            sys.stdout.write(values.get(key, "") + "\n" if bare else f"{key}={values.get(key, '')}\n")
    return 0


def _status(names: list[str]) -> int:
    states = units()
    worst = 0
    for name in names:
        full = full_name(name)
        unit = load(full)
        if unit is None:
            worst = fail(f"Unit {full} could not be found.", 4)
            continue
        state = states.get(full, {})
        sys.stdout.write(f"● {full}\n     Loaded: loaded ({unit.path}; {is_enabled(full)})\n")
        sys.stdout.write(f"     Active: {state.get('active', 'inactive')} ({state.get('sub', 'dead')})\n")
        if state.get("active") != "active":
            worst = worst or 3
    return worst


def _list(action: str, names: list[str], failed: bool) -> int:
    if action == "list-unit-files":
        full = [full_name(name) for name in names]
        existing = [name for name in full if find(name)]
        for name in existing:
            sys.stdout.write(f"{name} {is_enabled(name)} enabled\n")
        sys.stdout.write(f"\n{len(existing)} unit files listed.\n")
        return 0 if existing or not names else 1
    for name, state in sorted(units().items()):
        if failed and state.get("active") != "failed":
            continue
        if action == "list-timers" and not name.endswith(".timer"):
            continue
        sys.stdout.write(f"{name} loaded {state.get('active')} {state.get('sub')}\n")
    return 0

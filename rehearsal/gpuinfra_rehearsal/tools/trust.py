"""gpg and sha256sum for the stand-in files of vendors.

A stand-in key is one line with the vendor's real fingerprint. A signature contains the key and the hash, and the hash
is compared with the file. `sha256sum` prints the vendor's published hash for an unchanged stand-in file and the actual hash for any
other file, so a corrupt download does not match.
"""

from __future__ import annotations

import os
import sys

from .arguments import Arguments
from .passthrough import become_real
from .state import fail, read_state, read_text
from .universe import Universe
from .web import MAGIC, _content, declared_sha256, describe, own_script, release

_GPG_OPTIONS = {
    "--homedir": "home", "-o": "output", "--output": "output", "--status-fd": "status", "--keyring": "keyring",
    "--keyserver": "keyserver", "--recv-keys": "keys",
}  # fmt: skip


def gpg(argv: list[str]) -> int:
    """`--show-keys`, `--dearmor`, `--import`, `--verify`."""
    arguments = Arguments(argv, _GPG_OPTIONS)
    home = arguments.one("home", os.environ.get("GNUPGHOME", "/root/.gnupg"))
    output, status, words, flags = arguments.one("output"), arguments.one("status"), arguments.words, arguments.flags
    if "--dearmor" in flags or "--dearmour" in flags or "--export" in flags:
        text = read_text(words[0]) if words and words[0] != "-" else sys.stdin.read()
        if not _keys(text):
            return fail("gpg: no valid OpenPGP data found.", 2)
        if output and output != "-":
            with open(output, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            sys.stdout.write(text)
        return 0
    if "--show-keys" in flags or "--with-fingerprint" in flags:
        text = read_text(words[0]) if words else sys.stdin.read()
        return _show(text, "--with-colons" in flags)
    if "--import" in flags:
        text = read_text(words[0]) if words else sys.stdin.read()
        if not _keys(text):
            return fail("gpg: no valid OpenPGP data found.\ngpg: Total number processed: 0", 2)
        os.makedirs(home, mode=0o700, exist_ok=True)
        with open(f"{home}/stand-in-keyring", "a", encoding="utf-8") as file:
            file.write(text)
        sys.stderr.write(
            "".join(f'gpg: key {key[-16:]}: public key "{owner}" imported\n' for key, owner in _keys(text))
        )
        return 0
    if "--verify" in flags:
        return _verify(words, home, status)
    if "--version" in flags:
        sys.stdout.write("gpg (GnuPG) 2.2.27 (stand-in)\n")
        return 0
    return (
        0
        if flags <= {"--batch", "--yes", "--list-keys", "--quiet"}
        else fail(f"gpg: the stand-in does not support {sorted(flags)}", 2)
    )


def sha256sum(argv: list[str]) -> int:
    """Files and `-c`; other calls use the real command."""
    files = [word for word in argv if not word.startswith("-")]
    if not files or any(word in ("-c", "--check") for word in argv):
        return _check(argv, files) if files else become_real("sha256sum", argv)
    worst = 0
    for path in files:
        try:
            sys.stdout.write(f"{shown_sha256(path)}  {path}\n")
        except OSError as error:
            worst = fail(f"sha256sum: {path}: {error.strerror}")
    return worst


def shown_sha256(path: str) -> str:
    """Return the vendor's published hash for an unchanged stand-in file, otherwise the actual hash."""
    from _hashlib import openssl_sha256 as sha256

    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(MAGIC.encode()):
        url = data[len(MAGIC) :].partition(b"\n")[0].decode(errors="replace")
        entry, universe = describe(url)
        if entry and "sha256" in entry and data == _content(entry, url, universe):
            for part, published in entry["sha256"].items():
                if f"/{part}/" in url:
                    return published
    if data.startswith(b"\x1f\x8b") and (published := _of_release(data)):
        return published
    own = data.partition(b"\n")[2].partition(b"\n")[0].decode(errors="replace").partition(MAGIC)[2]
    if own and data == own_script(own) and declared_sha256(own):
        return declared_sha256(own)
    return sha256(data).hexdigest()


def _of_release(data: bytes) -> str:
    """Return the published hash of an unchanged archive of a release, or an empty string."""
    for item in Universe(read_state()).data["downloads"]:
        if item["kind"] == "release" and data == release(item["url"].rpartition("/")[2]):
            return str(next(iter(item["sha256"].values())))
    return ""


def _check(argv: list[str], files: list[str]) -> int:
    worst = 0
    for listing in files:
        for line in read_text(listing).splitlines():
            expected, _, path = line.partition(" ")
            path = path.lstrip(" *")
            good = shown_sha256(path) == expected
            if "--quiet" not in argv and "--status" not in argv:
                sys.stdout.write(f"{path}: {'OK' if good else 'FAILED'}\n")
            worst = worst if good else 1
    return worst


def _verify(words: list[str], home: str, status: str) -> int:
    if len(words) != 2:
        return fail("gpg: the stand-in supports detached signatures only: --verify SIGNATURE FILE", 2)
    signature = read_text(words[0], "").split()
    keys = dict(_keys(read_text(f"{home}/stand-in-keyring", "")))
    stream = os.fdopen(os.dup(int(status)), "w") if status else None
    if len(signature) != 4 or signature[:2] != ["stand-in", "signature"]:
        return fail("gpg: no valid OpenPGP data found.\ngpg: the signature could not be verified.", 2)
    from _hashlib import openssl_sha256 as sha256

    fingerprint, expected = signature[2:]
    with open(words[1], "rb") as file:
        good = sha256(file.read()).hexdigest() == expected
    if fingerprint not in keys:
        word, text, code = (
            f"ERRSIG {fingerprint[-16:]} 1 10 00 0 9 {fingerprint}\n[GNUPG:] NO_PUBKEY {fingerprint[-16:]}",
            "Can't check signature: No public key",
            2,
        )
    elif not good:
        word, text, code = (
            f"BADSIG {fingerprint[-16:]} {keys[fingerprint]}",
            f'BAD signature from "{keys[fingerprint]}"',
            1,
        )
    else:
        word = f"GOODSIG {fingerprint[-16:]} {keys[fingerprint]}\n[GNUPG:] VALIDSIG {fingerprint} 2026-01-01 1767225600 0 4 0 1 10 00 {fingerprint}"
        text, code = f'Good signature from "{keys[fingerprint]}"', 0
    sys.stderr.write(f"gpg: {text}\n")
    if stream:
        stream.write(f"[GNUPG:] NEWSIG\n[GNUPG:] {word}\n")
        stream.close()
    return code


def _keys(text: str) -> list[tuple[str, str]]:
    """Return (fingerprint, owner) of each stand-in key in a keyring."""
    keys = []
    for line in text.splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and words[:2] == ["stand-in", "key"]:
            keys.append((words[2], words[3]))
    return keys


def _show(text: str, colons: bool) -> int:
    keys = _keys(text)
    if not keys:
        return fail("gpg: no valid OpenPGP data found.", 2)
    for fingerprint, owner in keys:
        if colons:
            sys.stdout.write(
                f"pub:-:4096:1:{fingerprint[-16:]}:1577836800:::-:::scSC::::::23::0:\nfpr:::::::::{fingerprint}:\nuid:-::::1577836800::0::{owner}::::::::::0:\n"
            )
        else:
            sys.stdout.write(f"pub   rsa4096 2020-01-01 [SC]\n      {fingerprint}\nuid           {owner}\n\n")
    return 0

"""The part of the download that is the same on all clouds: requests whose failures name their cause, and a loop without an end.

It is part of user data, so it is short and uses Python's standard library only.
"""

import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import pathlib
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

MAX_BYTES = 64 * 1024 * 1024
ATTEMPT_S = 300
LONGEST_PAUSE_S = 30
CLOCK_TOLERANCE_S = 60


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the credentials to another host."""

    def redirect_request(self, *_):
        """Make each redirect an error."""


STORE = urllib.request.build_opener(NoRedirect)
DIRECT = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
clock = {"offset_s": 0.0}


class Trouble(Exception):
    """Why an attempt failed, in one sentence."""


def ask(who, request, direct=False):
    """The content of one answer of `who`. The metadata service (`direct`) is asked without a proxy."""
    host = urllib.parse.urlsplit(request.full_url).netloc
    try:
        with DIRECT.open(request, timeout=10) if direct else STORE.open(request, timeout=60) as answer:
            note_date(answer.headers)
            return answer.read()
    except urllib.error.HTTPError as error:
        note_date(error.headers)
        raise Trouble(f"{who} ({host}): HTTP {error.code} {said(error)}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = " ".join(str(getattr(error, "reason", error)).split())
        proxy = "" if request.host in host else f" through the proxy {request.host}"
        raise Trouble(f"{who} ({host}){proxy}: {cause or type(error).__name__}") from None


def said(error):
    """The code in an error answer, or its text."""
    try:
        text = error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    code = error.headers.get("x-ms-error-code") or text.partition("<Code>")[2].partition("</Code>")[0]
    return code or " ".join(text.split())[:200] or error.reason


def note_date(headers):
    """The difference between the clock of the cloud and the clock of this machine."""
    with contextlib.suppress(TypeError, ValueError):  # no date
        clock["offset_s"] = email.utils.parsedate_to_datetime(headers["Date"]).timestamp() - time.time()


def fields(who, body, *names):
    """The fields of an answer in JSON. The message shows no value that can be a secret."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        said_instead = " ".join(body.decode("utf-8", "replace").split())[:200] or "it is empty"
    elif all(name in answer for name in names):
        return [answer[name] for name in names]
    else:
        said_instead = answer.get("Message") or f"it has {', '.join(answer) or 'no field'}"
    raise Trouble(f"{who}: the answer has no {' and '.join(names)}: {said_instead}")


def unpacked(data, sha256):
    """The tar archive."""
    stream = zlib.decompressobj(31)
    try:
        archive = stream.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise Trouble(f"the object is damaged: {error}") from None
    if not stream.eof:
        raise Trouble(f"the object is incomplete after {len(data)} bytes")
    digest = hashlib.sha256(archive).hexdigest()
    if digest != sha256:
        raise Trouble(f"the object has the SHA-256 {digest}, not {sha256}")
    return archive


def too_slow(*_):
    """The handler of the alarm."""
    raise Trouble(f"no complete answer within {ATTEMPT_S} s")


def run(who, shown, request):
    """Fetch the object of `request(bucket, key, region)` from `who`. A failed attempt is repeated for as long as it takes."""
    *place, sha256, target = sys.argv[1:]
    signal.signal(signal.SIGALRM, too_slow)
    data, pause = None, 1
    while data is None:
        try:
            signal.alarm(ATTEMPT_S)
            data = unpacked(ask(who, request(*place)), sha256)
            say = f"{shown(*place)}: fetched"
        except Trouble as trouble:
            say = f"{shown(*place)}: {trouble}; retrying in {pause} s"
        signal.alarm(0)
        if abs(clock["offset_s"]) > CLOCK_TOLERANCE_S:
            say += f"; the clock of this machine is off by {-clock['offset_s']:.0f} s"
        print(say, file=sys.stderr, flush=True)
        if data is None:
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
    with pathlib.Path(target).open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())

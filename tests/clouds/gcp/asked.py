"""A client whose requests are validated by Google's discovery documents, for the tests of a failover and a failback."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from gpuinfra.clouds.gcp.api import Api
from gpuinfra.clouds.gcp.handover.ports import RequestFailed
from tests.clouds.gcp.discovery import answer_findings, document, findings
from tests.clouds.gcp.requests import Call

_TYPED: dict[str, Callable[[str], object]] = {"integer": int, "boolean": lambda value: value == "true"}
LUSTRE = "https://lustre.googleapis.com/v1/"


class Google:
    """Answers the expected requests in order. A number is the status of a refused request, and None is a request without a response."""

    def __init__(self) -> None:
        self._expected: list[tuple[str, str, dict[str, str], Any, Any]] = []
        self.slept: list[float] = []

    def expect(self, api: str, method: str, params: Mapping[str, str], answer: Any, body: Any = None) -> None:
        """Add a request. It must be valid by the discovery document, and so must its response."""
        about = _method(api, method)
        kinds = {name: str(one.get("type")) for name, one in about["parameters"].items()}
        typed = {name: _TYPED.get(kinds.get(name, ""), str)(value) for name, value in params.items()}
        assert findings(Call(api, method, typed, body)) == []
        path = about["path"]
        for name in re.findall(r"\{\+?(\w+)\}", path):
            path = re.sub(rf"\{{\+?{name}\}}", lambda found, name=name: quote(params[name], safe="/" if "+" in found[0] else ""), path)  # fmt: skip
        if isinstance(answer, Mapping):
            assert answer_findings(api, method, answer) == []
        given = document(api)
        query = {name: value for name, value in params.items() if about["parameters"].get(name, {}).get("location") != "path"}  # fmt: skip
        self._expected.append((about["httpMethod"], given["rootUrl"] + given["servicePath"] + path, query, body, answer))  # fmt: skip

    def lustre(self, method: str, path: str, answer: Any, body: Any = None, **query: str) -> None:
        """Add a request to Managed Lustre, which has no bundled discovery document."""
        self._expected.append((method, LUSTRE + path, query, body, answer))

    def json(self, method: str, url: str, parameters: Mapping[str, str] | None = None, body: Mapping[str, object] | None = None) -> dict[str, Any]:  # fmt: skip
        """Answer the next request."""
        wanted = self._expected.pop(0)
        parameters = {name: value for name, value in (parameters or {}).items() if name != "fields"}
        body = {name: value for name, value in body.items() if name != "requestId"} if body else body
        assert (method, url, parameters, body) == wanted[:4]
        if wanted[4] is None or isinstance(wanted[4], int):
            raise RequestFailed(f"{url} returned status {wanted[4]}", wanted[4])
        return dict(wanted[4])

    def api(self) -> Api:
        """The requests of a failover, without waiting between attempts."""
        return Api(self, sleep=self.slept.append)

    def done(self) -> None:
        """Check that all requests were sent."""
        assert self._expected == []


def _method(api: str, path: str) -> dict[str, Any]:
    *resources, name = path.split(".")
    here = document(api)
    for part in resources:
        here = here["resources"][part]
    found: dict[str, Any] = here["methods"][name]
    return found

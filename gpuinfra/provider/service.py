"""The plugin that the engine starts: the resources of `gpuinfra.handover`, and the `GpuCluster` component for programs in other languages.

A Python program creates the component itself. For such a program, the plugin neither imports the SDK of a cloud nor reads the declaration.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from pulumi.runtime.proto import provider_pb2

from gpuinfra.handover.provider import NodesReadyProvider, abort
from gpuinfra.handover.provider import serve as serve_provider


class PackageProvider(NodesReadyProvider):
    """The gRPC service of the package.

    The engine constructs components only in a plugin that accepts secrets, and sends the dependencies of nested inputs only to one that
    accepts outputs (`Construct` in pkg/resource/plugin/provider_plugin.go of Pulumi v3.259.0, retrieved 2026-11-26).
    """

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self._lock = threading.Lock()
        self._constructor: Any = None

    def Handshake(self, request: Any, context: Any) -> Any:
        answer = super().Handshake(request, context)
        answer.accept_outputs = True
        return answer

    def Configure(self, request: Any, context: Any) -> Any:
        answer = super().Configure(request, context)
        answer.acceptOutputs = True
        return answer

    def GetSchema(self, request: Any, context: Any) -> Any:
        from gpuinfra.provider.schema import package_schema

        return provider_pb2.GetSchemaResponse(schema=json.dumps(package_schema(self._version)))

    def Construct(self, request: Any, context: Any) -> Any:
        from gpuinfra.provider.component import ComponentRefused, Constructor

        with self._lock:
            self._constructor = self._constructor or Constructor(self._version)
        try:
            return self._constructor.construct(request, self._engine.address)
        except ComponentRefused as problem:
            return abort(context, str(problem))


def serve(arguments: Sequence[str]) -> int:
    """Run the plugin: print the port and serve until the engine exits."""
    return serve_provider(arguments, PackageProvider)

"""A Pulumi provider of one resource, `tiny:index:Thing`, written in Python, without any state."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent import futures

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

SCHEMA = {
    "name": "tiny",
    "version": "1.0.0",
    "resources": {
        "tiny:index:Thing": {
            "inputProperties": {"size": {"type": "integer"}},
            "requiredInputs": ["size"],
            "properties": {"size": {"type": "integer"}, "pid": {"type": "integer"}},
            "required": ["size", "pid"],
        }
    },
}


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    def Handshake(self, request, context):
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="1.0.0")

    def Attach(self, request, context):
        return empty_pb2.Empty()

    def GetSchema(self, request, context):
        return provider_pb2.GetSchemaResponse(schema=json.dumps(SCHEMA))

    def CheckConfig(self, request, context):
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request, context):
        return provider_pb2.DiffResponse()

    def Configure(self, request, context):
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Check(self, request, context):
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request, context):
        changed = request.olds["size"] != request.news["size"]
        kind = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=kind)

    def Create(self, request, context):
        if request.properties["size"] < 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "size is negative")
        print("a plugin's line on stderr", file=sys.stderr, flush=True)
        return provider_pb2.CreateResponse(id="thing-1", properties=state(request.properties["size"]))

    def Read(self, request, context):
        known = "size" in request.properties.fields
        size = request.properties["size"] if known else 7
        inputs = struct_pb2.Struct()
        inputs["size"] = size
        return provider_pb2.ReadResponse(id=request.id, properties=state(size), inputs=inputs)

    def Update(self, request, context):
        return provider_pb2.UpdateResponse(properties=state(request.news["size"]))

    def Delete(self, request, context):
        return empty_pb2.Empty()

    def Cancel(self, request, context):
        return empty_pb2.Empty()


def state(size):
    """What the cloud would hold, with the process that made it."""
    properties = struct_pb2.Struct()
    properties["size"] = size
    properties["pid"] = os.getpid()
    return properties


server = grpc.server(futures.ThreadPoolExecutor())
provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
threading.Event().wait()

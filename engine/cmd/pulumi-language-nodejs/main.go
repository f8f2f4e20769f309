// Command pulumi-language-nodejs is gpuinfra's language host for Node.js: a gRPC service through which the Pulumi
// engine runs JavaScript and TypeScript programs, installs their dependencies and generates SDKs.
//
// gpuinfra uses it to rehearse programs with an engine that has no host for Node.js.
// If Pulumi's own host is installed, gpuinfra uses that host instead.
// Read next: host.go for the service, run.go for a program, generate.go for SDKs.
package main

import (
	"github.com/gpuinfra/gpuinfra/engine/internal/host"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

func main() {
	host.Main("pulumi-language-nodejs", func(options host.Options) pulumirpc.LanguageRuntimeServer {
		return &languageHost{engine: options.Engine, tracing: options.Tracing, children: options.Children}
	})
}

// Command pulumi-language-python is gpuinfra's language host for Python: a gRPC service through which
// the Pulumi engine runs Python programs and plugins, installs their dependencies and generates code.
//
// It manages the lifetime of its child processes (internal/children) and implements the service with the toolchains and code
// generators of the SDK.
// It is independent of gpuinfra. If Pulumi's own host is installed, gpuinfra uses that host instead.
// Read next: host.go for the service, run.go for a program, plugin.go for a plugin.
package main

import (
	"github.com/gpuinfra/gpuinfra/engine/internal/host"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

func main() {
	host.Main("pulumi-language-python", func(options host.Options) pulumirpc.LanguageRuntimeServer {
		return &languageHost{
			engine: options.Engine, tracing: options.Tracing, folder: options.Folder, children: options.Children,
		}
	})
}

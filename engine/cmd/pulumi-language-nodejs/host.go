package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	"github.com/pulumi/pulumi/sdk/v3/nodejs/npm"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
)

// languageHost implements the engine's language service for Node.js.
type languageHost struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	// engine is the address of the engine that started this host.
	engine string
	// tracing is the endpoint of the program's tracing data; empty to disable it.
	tracing  string
	children *children.Children
}

// Handshake receives the engine's address if the engine attached to this host instead of starting it.
func (h *languageHost) Handshake(
	_ context.Context, request *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	h.engine = request.GetEngineAddress()
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

// GetPluginInfo returns the version of the SDK that this host was built from.
func (h *languageHost) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version.Version}, nil
}

// Cancel ends the running programs.
func (h *languageHost) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	h.children.EndPrograms()
	return &emptypb.Empty{}, nil
}

// options are the `runtime.options` of Pulumi.yaml.
type options struct {
	typescript     bool
	tsconfig       string
	nodeArguments  string
	packageManager npm.PackageManagerType
}

func optionsOf(info *pulumirpc.ProgramInfo) (options, error) {
	found := options{typescript: true}
	for name, raw := range info.GetOptions().AsMap() {
		text, isText := raw.(string)
		wrong := func(allowed string) error {
			return fmt.Errorf("runtime option %s is %v; allowed: %s", name, raw, allowed)
		}
		switch name {
		case "typescript":
			value, isBool := raw.(bool)
			if !isBool {
				return found, wrong("true, false")
			}
			found.typescript = value
		case "tsconfig":
			if !isText {
				return found, wrong("the path of a tsconfig.json, relative to the project")
			}
			found.tsconfig = text
		case "nodeargs":
			if !isText {
				return found, wrong("arguments for node, separated by spaces")
			}
			found.nodeArguments = text
		case "packagemanager":
			if !isText {
				return found, wrong("auto, npm, yarn, pnpm, bun")
			}
			found.packageManager = npm.PackageManagerType(text)
		}
	}
	return found, nil
}

// findUpward returns the first path `folder/name` that exists in a folder or above it, as Node.js looks for modules.
func findUpward(folder, name string) (string, bool) {
	for {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", false
		}
		folder = parent
	}
}

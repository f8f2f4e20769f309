package main

import (
	"context"
	"fmt"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
	"google.golang.org/protobuf/types/known/emptypb"
)

// languageHost implements the engine's language service for Python.
type languageHost struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	// engine is the address of the engine that started this host.
	engine string
	// tracing is the endpoint of the program's tracing data; empty to disable it.
	tracing string
	// folder is the folder of pulumi-language-python-exec.
	folder   string
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
// Plugins continue to run: the engine cancels each plugin itself and ends it after the plugin has saved its state.
func (h *languageHost) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	h.children.EndPrograms()
	return &emptypb.Empty{}, nil
}

// optionsOf reads `runtime.options` of Pulumi.yaml or PulumiPlugin.yaml.
func optionsOf(info *pulumirpc.ProgramInfo) (toolchain.PythonOptions, error) {
	options := toolchain.PythonOptions{Root: info.GetRootDirectory(), ProgramDir: info.GetProgramDirectory()}
	for name, raw := range info.GetOptions().AsMap() {
		value, isText := raw.(string)
		wrong := func(allowed string) error {
			return fmt.Errorf("runtime option %s is %v; allowed: %s", name, raw, allowed)
		}
		switch name {
		case "virtualenv":
			if !isText {
				return options, wrong("the path of a virtual environment, absolute or relative to the project")
			}
			options.Virtualenv = value
		case "toolchain":
			switch value {
			case "pip":
				options.Toolchain = toolchain.Pip
			case "poetry":
				options.Toolchain = toolchain.Poetry
			case "uv":
				options.Toolchain = toolchain.Uv
			case "auto":
				options.Toolchain = toolchain.Auto
			default:
				return options, wrong("pip, poetry, uv, auto")
			}
		case "typechecker":
			switch value {
			case "none", "":
				options.Typechecker = toolchain.TypeCheckerNone
			case "mypy":
				options.Typechecker = toolchain.TypeCheckerMypy
			case "pyright":
				options.Typechecker = toolchain.TypeCheckerPyright
			default:
				return options, wrong("mypy, pyright, none")
			}
		}
	}
	return options, nil
}

// toolchainOf returns the Python toolchain of the program or plugin.
func toolchainOf(info *pulumirpc.ProgramInfo) (toolchain.PythonOptions, toolchain.Toolchain, error) {
	options, err := optionsOf(info)
	if err != nil {
		return options, nil, err
	}
	chain, err := toolchain.ResolveToolchain(options)
	return options, chain, err
}

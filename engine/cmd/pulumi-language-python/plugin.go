package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/contract"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// RunPlugin runs a Python program that is a plugin (a folder with a PulumiPlugin.yaml), streams its output and returns
// its exit code.
func (h *languageHost) RunPlugin(
	request *pulumirpc.RunPluginRequest, server pulumirpc.LanguageRuntime_RunPluginServer,
) error {
	ctx := server.Context()
	_, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return err
	}
	if err := chain.ValidateVenv(ctx); err != nil {
		return err
	}
	entry := filepath.Join(request.GetInfo().GetProgramDirectory(), request.GetInfo().GetEntryPoint())
	command, err := chain.Command(context.WithoutCancel(ctx), append([]string{"-u", entry}, request.GetArgs()...)...)
	if err != nil {
		return err
	}
	command.Dir = request.GetPwd()
	command.Env = overlay(environmentOf(command), request.GetEnv())

	closer, stdout, stderr, err := rpcutil.MakeRunPluginStreams(server, false /* a plugin writes to no terminal */)
	if err != nil {
		return err
	}
	defer contract.IgnoreClose(closer)
	command.Stdout, command.Stderr = stdout, stderr

	err = h.children.Run(command, children.Plugin, ctx.Done())
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil: // the engine ends a plugin by closing the call
		return nil
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return sendExit(server, 0)
	case errors.As(err, &failed):
		return sendExit(server, failed.ExitCode())
	}
	return fmt.Errorf("cannot run the plugin with %s: %w", command.Path, err)
}

func sendExit(server pulumirpc.LanguageRuntime_RunPluginServer, code int) error {
	return server.Send(&pulumirpc.RunPluginResponse{
		Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(code)},
	})
}

// overlay adds the engine's variables to those of the toolchain, which activate the virtual environment.
func overlay(toolchain, engine []string) []string {
	result := make([]string, 0, len(toolchain)+len(engine))
	for _, variable := range engine {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "PATH", "VIRTUAL_ENV", "PYTHONHOME":
		default:
			result = append(result, variable)
		}
	}
	kept := map[string]bool{}
	for _, variable := range result {
		name, _, _ := strings.Cut(variable, "=")
		kept[name] = true
	}
	for _, variable := range toolchain {
		if name, _, _ := strings.Cut(variable, "="); !kept[name] {
			result = append(result, variable)
		}
	}
	return result
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
)

// exitShown is the exit code of pulumi-language-python-exec if it has already shown the error.
const exitShown = 32

// Run executes a Pulumi program and returns the error that the engine still has to show, if any.
func (h *languageHost) Run(
	ctx context.Context, request *pulumirpc.RunRequest,
) (*pulumirpc.RunResponse, error) {
	options, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	if err := chain.ValidateVenv(ctx); err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	if message, err := h.typecheck(ctx, options, chain); err != nil || message != "" {
		return &pulumirpc.RunResponse{Error: message}, err
	}
	environment, err := programEnvironment(ctx, request, options, chain)
	if err != nil {
		return nil, err
	}
	command, err := chain.Command(context.WithoutCancel(ctx), h.programArguments(request)...)
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	command.Dir = request.GetPwd()
	command.Env = append(environmentOf(command), environment...)
	// Do not pass the files themselves: the engine would wait for a background process that keeps them open.
	command.Stdout, command.Stderr = struct{ io.Writer }{os.Stdout}, struct{ io.Writer }{os.Stderr}
	return answerOf(h.children.Run(command, children.Program, ctx.Done()), command)
}

// programArguments returns the arguments for pulumi-language-python-exec.
func (h *languageHost) programArguments(request *pulumirpc.RunRequest) []string {
	info := request.GetInfo()
	arguments := []string{"-u", filepath.Join(h.folder, "pulumi-language-python-exec")}
	add := func(name, value string) {
		if value != "" {
			arguments = append(arguments, "--"+name, value)
		}
	}
	add("monitor", request.GetMonitorAddress())
	add("engine", h.engine)
	add("project", request.GetProject())
	add("root_directory", info.GetRootDirectory())
	add("stack", request.GetStack())
	add("pwd", request.GetPwd())
	add("dry_run", strconv.FormatBool(request.GetDryRun()))
	add("parallel", strconv.Itoa(int(request.GetParallel())))
	add("tracing", h.tracing)
	add("organization", request.GetOrganization())
	arguments = append(arguments, filepath.Join(info.GetProgramDirectory(), info.GetEntryPoint()))
	return append(arguments, request.GetArgs()...)
}

// programEnvironment passes configuration and toolchain to the SDK in the program.
func programEnvironment(
	ctx context.Context, request *pulumirpc.RunRequest, options toolchain.PythonOptions, chain toolchain.Toolchain,
) ([]string, error) {
	config, err := json.Marshal(orEmptyMap(request.GetConfig()))
	if err != nil {
		return nil, fmt.Errorf("cannot pass the configuration to the program: %w", err)
	}
	secrets, err := json.Marshal(orEmptyList(request.GetConfigSecretKeys()))
	if err != nil {
		return nil, fmt.Errorf("cannot pass the names of secrets to the program: %w", err)
	}
	environment := []string{"PULUMI_CONFIG=" + string(config), "PULUMI_CONFIG_SECRET_KEYS=" + string(secrets)}
	// Dynamic providers find their Python by these two variables.
	if options.Toolchain != toolchain.Auto {
		name := strings.ToLower(toolchain.Name(options.Toolchain))
		environment = append(environment, "PULUMI_RUNTIME_TOOLCHAIN="+name)
	}
	if path, err := chain.VirtualEnvPath(ctx); err == nil && path != "" {
		environment = append(environment, "PULUMI_RUNTIME_VIRTUALENV="+path)
	}
	return environment, nil
}

// typecheck runs the type checker of the project and returns its findings.
func (h *languageHost) typecheck(
	ctx context.Context, options toolchain.PythonOptions, chain toolchain.Toolchain,
) (string, error) {
	if options.Typechecker == toolchain.TypeCheckerNone {
		return "", nil
	}
	name := strings.ToLower(toolchain.TypeCheckerName(options.Typechecker))
	command, err := chain.ModuleCommand(ctx, name, options.ProgramDir)
	if err != nil {
		return "", err
	}
	var output bytes.Buffer
	command.Dir = options.Root
	command.Stdout, command.Stderr = &output, &output
	err = h.children.Run(command, children.Program, ctx.Done())
	var failed *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &failed) && strings.Contains(output.String(), "No module named "+name):
		return fmt.Sprintf("the typechecker %s is not installed; add it to the project's dependencies and run "+
			"`pulumi install`", name), nil
	case errors.As(err, &failed):
		return fmt.Sprintf("%s found errors in the program:\n\n%s", name, output.String()), nil
	}
	return "", err
}

// answerOf converts the exit of a program into the error that the engine shows.
func answerOf(err error, command *exec.Cmd) (*pulumirpc.RunResponse, error) {
	var failed *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &failed) && failed.ExitCode() == exitShown:
		return &pulumirpc.RunResponse{Bail: true}, nil
	case errors.As(err, &failed) && failed.ExitCode() < 0:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("Program ended early: %v", failed)}, nil
	case errors.As(err, &failed):
		return &pulumirpc.RunResponse{
			Error: fmt.Sprintf("Program exited with non-zero exit code: %d", failed.ExitCode()),
		}, nil
	}
	return nil, fmt.Errorf("cannot run %s: %w", command.Path, err)
}

// environmentOf returns the environment of the command, or the host's own if the toolchain did not set one.
func environmentOf(command *exec.Cmd) []string {
	if command.Env == nil {
		return os.Environ()
	}
	return slices.Clone(command.Env)
}

func orEmptyMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func orEmptyList(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

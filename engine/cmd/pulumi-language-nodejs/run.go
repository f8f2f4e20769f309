package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

const (
	// exitShown is the exit code of the runner if it has already shown the error.
	exitShown = 32
	// runner is the script of the SDK that runs a program.
	runner = "node_modules/@pulumi/pulumi/cmd/run/index.js"
)

// Run executes a Pulumi program and returns the error that the engine still has to show, if any.
func (h *languageHost) Run(ctx context.Context, request *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	info := request.GetInfo()
	options, err := optionsOf(info)
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	script, found := findUpward(info.GetProgramDirectory(), runner)
	if !found {
		return &pulumirpc.RunResponse{Error: fmt.Sprintf(
			"the SDK of Pulumi is not installed for %s; run `npm install` in the folder of the program", info.GetProgramDirectory(),
		)}, nil
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return &pulumirpc.RunResponse{Error: "node is not on PATH; install Node.js (https://nodejs.org)"}, nil
	}
	environment, err := programEnvironment(request, options)
	if err != nil {
		return nil, err
	}
	arguments := append(strings.Fields(options.nodeArguments), script)
	command := exec.Command(node, append(arguments, h.programArguments(request)...)...)
	command.Dir = request.GetPwd()
	command.Env = append(os.Environ(), environment...)
	// Do not pass the files themselves: the engine would wait for a background process that keeps them open.
	command.Stdout, command.Stderr = struct{ io.Writer }{os.Stdout}, struct{ io.Writer }{os.Stderr}
	err = h.children.Run(command, children.Program, ctx.Done())
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

// programArguments returns the arguments for the runner.
func (h *languageHost) programArguments(request *pulumirpc.RunRequest) []string {
	info := request.GetInfo()
	var arguments []string
	add := func(name, value string) {
		if value != "" {
			arguments = append(arguments, "--"+name, value)
		}
	}
	add("monitor", request.GetMonitorAddress())
	add("engine", h.engine)
	add("organization", request.GetOrganization())
	add("project", request.GetProject())
	add("root-directory", info.GetRootDirectory())
	add("stack", request.GetStack())
	add("pwd", request.GetPwd())
	if request.GetDryRun() {
		arguments = append(arguments, "--dry-run")
	}
	add("parallel", strconv.Itoa(int(request.GetParallel())))
	add("tracing", h.tracing)
	arguments = append(arguments, filepath.Join(info.GetProgramDirectory(), info.GetEntryPoint()))
	return append(arguments, request.GetArgs()...)
}

// programEnvironment passes configuration and options to the SDK in the program.
func programEnvironment(request *pulumirpc.RunRequest, options options) ([]string, error) {
	values := request.GetConfig()
	if values == nil {
		values = map[string]string{}
	}
	config, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("cannot pass the configuration to the program: %w", err)
	}
	secrets, err := json.Marshal(append([]string{}, request.GetConfigSecretKeys()...))
	if err != nil {
		return nil, fmt.Errorf("cannot pass the names of secrets to the program: %w", err)
	}
	environment := []string{"PULUMI_CONFIG=" + string(config), "PULUMI_CONFIG_SECRET_KEYS=" + string(secrets)}
	if options.typescript {
		environment = append(environment, "PULUMI_NODEJS_TYPESCRIPT=true")
	}
	if options.tsconfig != "" {
		environment = append(environment, "PULUMI_NODEJS_TSCONFIG_PATH="+options.tsconfig)
	}
	return environment, nil
}

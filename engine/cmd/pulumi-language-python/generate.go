package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/pulumi/pulumi/pkg/v3/codegen/pcl"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	pkgplugin "github.com/pulumi/pulumi/pkg/v3/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/contract"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// GenerateProgram writes Python for a program in Pulumi's intermediate language; `pulumi import` prints it.
func (h *languageHost) GenerateProgram(
	_ context.Context, request *pulumirpc.GenerateProgramRequest,
) (*pulumirpc.GenerateProgramResponse, error) {
	loader, err := schema.NewLoaderClient(request.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer contract.IgnoreClose(loader)
	folder, err := os.MkdirTemp("", "pulumi-generate-")
	if err != nil {
		return nil, err
	}
	defer func() { contract.IgnoreError(os.RemoveAll(folder)) }()
	for name, text := range request.GetSource() {
		path := filepath.Join(folder, filepath.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	program, diagnostics, err := pcl.BindDirectory(folder, schema.NewCachedLoader(loader), bindOptions(request.GetStrict())...)
	if err != nil {
		return nil, err
	}
	answer := &pulumirpc.GenerateProgramResponse{}
	if !diagnostics.HasErrors() && program != nil {
		var more hcl.Diagnostics
		if answer.Source, more, err = python.GenerateProgram(program); err != nil {
			return nil, err
		}
		diagnostics = append(diagnostics, more...)
	}
	answer.Diagnostics = pkgplugin.HclDiagnosticsToRPCDiagnostics(diagnostics)
	return answer, nil
}

// GenerateProject writes a project; `pulumi convert` calls it.
func (h *languageHost) GenerateProject(
	_ context.Context, request *pulumirpc.GenerateProjectRequest,
) (*pulumirpc.GenerateProjectResponse, error) {
	loader, err := schema.NewLoaderClient(request.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer contract.IgnoreClose(loader)
	program, diagnostics, err := pcl.BindDirectory(
		request.GetSourceDirectory(), schema.NewCachedLoader(loader), bindOptions(request.GetStrict())...)
	if err != nil {
		return nil, err
	}
	answer := &pulumirpc.GenerateProjectResponse{
		Diagnostics: pkgplugin.HclDiagnosticsToRPCDiagnostics(diagnostics),
	}
	if diagnostics.HasErrors() || program == nil {
		return answer, nil
	}
	var project workspace.Project
	if err := json.Unmarshal([]byte(request.GetProject()), &project); err != nil {
		return nil, fmt.Errorf("cannot parse the project from the engine: %w", err)
	}
	option := func(name string) string {
		text, _ := project.Runtime.Options()[name].(string)
		return text
	}
	err = python.GenerateProject(request.GetTargetDirectory(), project, program, request.GetLocalDependencies(),
		option("typechecker"), option("toolchain"))
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// GeneratePackage writes the Python SDK of a package from its schema; `pulumi package gen-sdk` and
// `pulumi package add` call it.
func (h *languageHost) GeneratePackage(
	ctx context.Context, request *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	loader, err := schema.NewLoaderClient(request.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer contract.IgnoreClose(loader)
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(request.GetSchema()), &spec); err != nil {
		return nil, fmt.Errorf("cannot parse the schema from the engine: %w", err)
	}
	pkg, diagnostics, err := schema.BindSpecWithContext(
		ctx, spec, schema.NewCachedLoader(loader), schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		return nil, err
	}
	answer := &pulumirpc.GeneratePackageResponse{
		Diagnostics: pkgplugin.HclDiagnosticsToRPCDiagnostics(diagnostics),
	}
	if diagnostics.HasErrors() {
		return answer, nil
	}
	files, err := python.GeneratePackage("pulumi-language-python", pkg, request.GetExtraFiles(), loader)
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		path := filepath.Join(request.GetDirectory(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// bindOptions relaxes the binder unless the request is strict.
func bindOptions(strict bool) []pcl.BindOption {
	if strict {
		return nil
	}
	return pcl.NonStrictBindOptions()
}

// wheelsIn returns the wheels in a folder with their modification times.
func wheelsIn(folder string) (map[string]time.Time, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(folder), "*.whl"))
	if err != nil {
		return nil, err
	}
	wheels := map[string]time.Time{}
	for _, path := range paths {
		about, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		wheels[path] = about.ModTime()
	}
	return wheels, nil
}

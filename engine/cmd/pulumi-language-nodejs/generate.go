package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	pkgplugin "github.com/pulumi/pulumi/pkg/v3/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/contract"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/nodejs/npm"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// GeneratePackage writes the SDK of a package from its schema; `pulumi package gen-sdk` and `pulumi package add` call it.
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
	answer := &pulumirpc.GeneratePackageResponse{Diagnostics: pkgplugin.HclDiagnosticsToRPCDiagnostics(diagnostics)}
	if diagnostics.HasErrors() {
		return answer, nil
	}
	files, err := nodejs.GeneratePackage("pulumi-language-nodejs", pkg, request.GetExtraFiles(),
		request.GetLocalDependencies(), request.GetLocal(), loader)
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

// InstallDependencies installs the packages of the program, for `pulumi install`.
func (h *languageHost) InstallDependencies(
	request *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	options, err := optionsOf(request.GetInfo())
	if err != nil {
		return err
	}
	folder := request.GetInfo().GetProgramDirectory()
	if request.GetDirectory() != "" {
		folder = request.GetDirectory()
	}
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(server, request.GetIsTerminal())
	if err != nil {
		return err
	}
	defer contract.IgnoreClose(closer)
	if _, err := npm.Install(server.Context(), options.packageManager, folder, false, stdout, stderr); err != nil {
		return err
	}
	return closer.Close()
}

// Link adds generated packages to the dependencies of the program and returns how to import them.
func (h *languageHost) Link(ctx context.Context, request *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	options, err := optionsOf(request.GetInfo())
	if err != nil {
		return nil, err
	}
	folder := request.GetInfo().GetRootDirectory()
	manager, err := npm.ResolvePackageManager(options.packageManager, folder)
	if err != nil {
		return nil, err
	}
	var imports strings.Builder
	imports.WriteString("You can import the SDK in your TypeScript code with:\n\n")
	for _, link := range request.GetPackages() {
		path := link.GetPath()
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		name, err := nameOf(path)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return nil, err
		}
		if err := manager.Link(ctx, folder, name, relative); err != nil {
			return nil, err
		}
		fmt.Fprintf(&imports, "  import * as %s from %q;\n", strings.ReplaceAll(link.GetPackage().GetName(), "-", ""), name)
	}
	return &pulumirpc.LinkResponse{ImportInstructions: imports.String()}, nil
}

// nameOf returns the name of a generated package.
func nameOf(folder string) (string, error) {
	content, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil {
		return "", err
	}
	var about struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(content, &about); err != nil {
		return "", fmt.Errorf("cannot read the name of the package in %s: %w", folder, err)
	}
	return about.Name, nil
}

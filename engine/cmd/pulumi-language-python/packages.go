package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	sdkplugin "github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
)

// GetRequiredPackages lists the installed Pulumi packages of the program, each with its plugin.
func (h *languageHost) GetRequiredPackages(
	ctx context.Context, request *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	packages, err := installedPackages(ctx, request.GetInfo())
	if err != nil {
		return nil, err
	}
	return &pulumirpc.GetRequiredPackagesResponse{Packages: packages}, nil
}

// GetRequiredPlugins returns the plugins for engines that do not support packages.
func (h *languageHost) GetRequiredPlugins(
	ctx context.Context, request *pulumirpc.GetRequiredPluginsRequest,
) (*pulumirpc.GetRequiredPluginsResponse, error) {
	packages, err := installedPackages(ctx, request.GetInfo())
	if err != nil {
		return nil, err
	}
	response := &pulumirpc.GetRequiredPluginsResponse{}
	for _, one := range packages {
		response.Plugins = append(response.Plugins, &pulumirpc.PluginDependency{
			Name: one.GetName(), Kind: one.GetKind(), Version: one.GetVersion(), Server: one.GetServer(),
		})
	}
	return response, nil
}

// installedPackages reads the pulumi-plugin.json of every package on the program's import path.
// A program without its environment needs no packages; Run reports the missing environment.
func installedPackages(ctx context.Context, info *pulumirpc.ProgramInfo) ([]*pulumirpc.PackageDependency, error) {
	_, chain, err := toolchainOf(info)
	if err != nil {
		return nil, err
	}
	folders, err := importPath(ctx, chain)
	if err != nil {
		logging.V(5).Infof("no import path to look for packages: %v", err)
		return nil, nil
	}
	var packages []*pulumirpc.PackageDependency
	seen := map[string]bool{}
	for _, folder := range folders {
		manifests, err := filepath.Glob(filepath.Join(escapeGlob(folder), "*", "pulumi-plugin.json"))
		if err != nil {
			return nil, err
		}
		for _, manifest := range manifests {
			module := filepath.Base(filepath.Dir(manifest))
			if seen[module] { // Python imports the first match on the path
				continue
			}
			seen[module] = true
			one, err := packageOf(folder, module, manifest)
			if err != nil {
				return nil, err
			}
			if one != nil {
				packages = append(packages, one)
			}
		}
	}
	return packages, nil
}

func packageOf(folder, module, manifest string) (*pulumirpc.PackageDependency, error) {
	about, err := sdkplugin.LoadPulumiPluginJSON(manifest)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", manifest, err)
	}
	if !about.Resource {
		return nil, nil
	}
	one := &pulumirpc.PackageDependency{
		Name: about.Name, Kind: "resource", Version: about.Version, Server: about.Server,
	}
	if one.Name == "" {
		one.Name = strings.ReplaceAll(strings.TrimPrefix(module, "pulumi_"), "_", "-")
	}
	if one.Version == "" {
		one.Version = distributionVersion(folder, module)
	}
	if one.Version != "" && !strings.HasPrefix(one.Version, "v") {
		one.Version = "v" + one.Version
	}
	one.Parameterization = parameterization(about.Parameterization)
	one.Extension = parameterization(about.ExtensionParameterization)
	return one, nil
}

func parameterization(about *sdkplugin.PulumiParameterizationJSON) *pulumirpc.PackageParameterization {
	if about == nil {
		return nil
	}
	return &pulumirpc.PackageParameterization{Name: about.Name, Version: about.Version, Value: about.Value}
}

// distributionVersion returns the version of the module's distribution, taken from the name of its metadata folder.
func distributionVersion(folder, module string) string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return ""
	}
	normal := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }
	for _, entry := range entries {
		stem, isMetadata := strings.CutSuffix(entry.Name(), ".dist-info")
		name, version, _ := strings.Cut(stem, "-")
		if isMetadata && normal(name) == normal(module) {
			return version
		}
	}
	return ""
}

// importPath returns the sys.path of the program.
func importPath(ctx context.Context, chain toolchain.Toolchain) ([]string, error) {
	if err := chain.ValidateVenv(ctx); err != nil {
		return nil, err
	}
	command, err := chain.Command(ctx, "-c", "import json, sys; print(json.dumps(sys.path[1:]))")
	if err != nil {
		return nil, err
	}
	output, err := command.Output()
	if err != nil {
		return nil, err
	}
	var folders []string
	if err := json.Unmarshal(output, &folders); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(folders, func(folder string) bool { return !filepath.IsAbs(folder) }), nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// GetProgramDependencies lists the installed distributions for `pulumi about`.
func (h *languageHost) GetProgramDependencies(
	ctx context.Context, request *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	_, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return nil, err
	}
	if err := chain.ValidateVenv(ctx); err != nil {
		return nil, err
	}
	distributions, err := chain.ListPackages(ctx, request.GetTransitiveDependencies())
	if err != nil {
		return nil, err
	}
	response := &pulumirpc.GetProgramDependenciesResponse{}
	for _, one := range distributions {
		response.Dependencies = append(response.Dependencies,
			&pulumirpc.DependencyInfo{Name: one.Name, Version: one.Version})
	}
	return response, nil
}

// About returns the Python interpreter that runs programs.
func (h *languageHost) About(
	ctx context.Context, request *pulumirpc.AboutRequest,
) (*pulumirpc.AboutResponse, error) {
	options, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return nil, err
	}
	python, err := chain.About(ctx)
	if err != nil {
		return nil, err
	}
	return &pulumirpc.AboutResponse{
		Executable: python.PythonExecutable,
		Version:    python.PythonVersion.String(),
		Metadata: map[string]string{
			"toolchain":        toolchain.Name(options.Toolchain),
			"toolchainVersion": python.ToolchainVersion.String(),
			"typechecker":      toolchain.TypeCheckerName(options.Typechecker),
		},
	}, nil
}

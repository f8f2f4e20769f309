package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	sdkplugin "github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// manifest is the part of a package.json that describes a Pulumi package.
type manifest struct {
	Version string                     `json:"version"`
	Pulumi  sdkplugin.PulumiPluginJSON `json:"pulumi"`
}

// GetRequiredPackages lists the installed Pulumi packages of the program, each with its plugin.
func (h *languageHost) GetRequiredPackages(
	_ context.Context, request *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	response := &pulumirpc.GetRequiredPackagesResponse{}
	modules, found := findUpward(request.GetInfo().GetProgramDirectory(), "node_modules")
	if !found {
		return response, nil // Run reports the missing modules.
	}
	for _, pattern := range []string{"*/package.json", "@*/*/package.json"} {
		paths, err := filepath.Glob(filepath.Join(modules, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			one, err := packageOf(path)
			if err != nil {
				return nil, err
			}
			if one != nil {
				response.Packages = append(response.Packages, one)
			}
		}
	}
	return response, nil
}

func packageOf(path string) (*pulumirpc.PackageDependency, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var about manifest
	if err := json.Unmarshal(content, &about); err != nil || !about.Pulumi.Resource {
		return nil, nil // Packages of others can have other values under these names.
	}
	one := &pulumirpc.PackageDependency{
		Name: about.Pulumi.Name, Kind: "resource", Version: about.Pulumi.Version, Server: about.Pulumi.Server,
	}
	if one.Name == "" {
		one.Name = filepath.Base(filepath.Dir(path))
	}
	if one.Version == "" {
		one.Version = about.Version
	}
	if one.Version != "" && !strings.HasPrefix(one.Version, "v") {
		one.Version = "v" + one.Version
	}
	if parameters := about.Pulumi.Parameterization; parameters != nil {
		one.Parameterization = &pulumirpc.PackageParameterization{
			Name: parameters.Name, Version: parameters.Version, Value: parameters.Value,
		}
	}
	return one, nil
}

// GetRequiredPlugins returns the plugins for engines that do not support packages.
func (h *languageHost) GetRequiredPlugins(
	ctx context.Context, request *pulumirpc.GetRequiredPluginsRequest,
) (*pulumirpc.GetRequiredPluginsResponse, error) {
	packages, err := h.GetRequiredPackages(ctx, &pulumirpc.GetRequiredPackagesRequest{Info: request.GetInfo()})
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of the program: %w", err)
	}
	response := &pulumirpc.GetRequiredPluginsResponse{}
	for _, one := range packages.GetPackages() {
		response.Plugins = append(response.Plugins, &pulumirpc.PluginDependency{
			Name: one.GetName(), Kind: one.GetKind(), Version: one.GetVersion(), Server: one.GetServer(),
		})
	}
	return response, nil
}

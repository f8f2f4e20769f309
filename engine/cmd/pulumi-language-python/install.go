package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/contract"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// InstallDependencies creates the virtual environment and installs the dependencies of the program or plugin, for
// `pulumi install` and `pulumi new`.
func (h *languageHost) InstallDependencies(
	request *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	options, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return err
	}
	folder := request.GetInfo().GetProgramDirectory()
	if request.GetDirectory() != "" {
		folder = request.GetDirectory()
	}
	if options.Virtualenv == "" && !namesDependencies(folder) {
		return nil // otherwise the toolchain would upgrade pip in the first Python on PATH
	}
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(server, request.GetIsTerminal())
	if err != nil {
		return err
	}
	defer contract.IgnoreClose(closer)
	err = chain.InstallDependencies(
		server.Context(), folder, request.GetUseLanguageVersionTools(), true /*showOutput*/, stdout, stderr)
	if err != nil {
		return err
	}
	return closer.Close()
}

// namesDependencies reports whether a folder declares dependencies.
func namesDependencies(folder string) bool {
	for _, name := range []string{"requirements.txt", "pyproject.toml"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}

// RuntimeOptionsPrompts lets `pulumi new` prompt for the toolchain if the template does not set one.
func (h *languageHost) RuntimeOptionsPrompts(
	_ context.Context, request *pulumirpc.RuntimeOptionsRequest,
) (*pulumirpc.RuntimeOptionsResponse, error) {
	if _, named := request.GetInfo().GetOptions().AsMap()["toolchain"]; named {
		return &pulumirpc.RuntimeOptionsResponse{}, nil
	}
	choice := func(name string) *pulumirpc.RuntimeOptionPrompt_RuntimeOptionValue {
		label := name
		if _, err := exec.LookPath(name); err != nil && name != "pip" {
			label = name + " (not installed)"
		}
		return &pulumirpc.RuntimeOptionPrompt_RuntimeOptionValue{
			PromptType: pulumirpc.RuntimeOptionPrompt_STRING, StringValue: name, DisplayName: label,
		}
	}
	return &pulumirpc.RuntimeOptionsResponse{Prompts: []*pulumirpc.RuntimeOptionPrompt{{
		Key:         "toolchain",
		Description: "The toolchain to use for installing dependencies and running the program",
		PromptType:  pulumirpc.RuntimeOptionPrompt_STRING,
		Choices:     []*pulumirpc.RuntimeOptionPrompt_RuntimeOptionValue{choice("pip"), choice("poetry"), choice("uv")},
		Default:     choice("pip"),
	}}}, nil
}

// Template converts the requirements.txt of a new project for its toolchain.
func (h *languageHost) Template(
	ctx context.Context, request *pulumirpc.TemplateRequest,
) (*pulumirpc.TemplateResponse, error) {
	_, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return nil, err
	}
	err = chain.PrepareProject(ctx, request.GetProjectName(), request.GetInfo().GetProgramDirectory(),
		false /*showOutput*/, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	return &pulumirpc.TemplateResponse{}, nil
}

// Link adds generated packages to the dependencies of the program and returns how to import them.
func (h *languageHost) Link(
	ctx context.Context, request *pulumirpc.LinkRequest,
) (*pulumirpc.LinkResponse, error) {
	if len(request.GetPackages()) == 0 {
		return &pulumirpc.LinkResponse{}, nil
	}
	_, chain, err := toolchainOf(request.GetInfo())
	if err != nil {
		return nil, err
	}
	loader, err := schema.NewLoaderClient(request.GetLoaderTarget())
	if err != nil {
		return nil, err
	}
	defer contract.IgnoreClose(loader)
	paths := map[string]string{}
	var imports strings.Builder
	imports.WriteString("You can import the SDK in your Python code with:\n\n")
	for _, link := range request.GetPackages() {
		module, alias, err := moduleOf(ctx, loader, link.GetPackage())
		if err != nil {
			return nil, err
		}
		path := link.GetPath()
		if relative, err := filepath.Rel(request.GetInfo().GetRootDirectory(), path); filepath.IsAbs(path) && err == nil {
			path = relative
		}
		paths[module] = path
		fmt.Fprintf(&imports, "  import %s as %s\n", module, alias)
	}
	if err := chain.LinkPackages(ctx, paths); err != nil {
		return nil, err
	}
	return &pulumirpc.LinkResponse{ImportInstructions: imports.String()}, nil
}

// moduleOf returns the module of a generated package and its conventional alias.
func moduleOf(
	ctx context.Context, loader *schema.LoaderClient, wanted *pulumirpc.PackageDependency,
) (module, alias string, err error) {
	descriptor := &schema.PackageDescriptor{Name: wanted.GetName(), DownloadURL: wanted.GetServer()}
	if wanted.GetVersion() != "" {
		version, err := semver.ParseTolerant(wanted.GetVersion())
		if err != nil {
			return "", "", fmt.Errorf("package %s has an invalid version %q: %w", wanted.GetName(), wanted.GetVersion(), err)
		}
		descriptor.Version = &version
	}
	if parameters := wanted.GetParameterization(); parameters != nil {
		version, err := semver.ParseTolerant(parameters.GetVersion())
		if err != nil {
			return "", "", fmt.Errorf("package %s has an invalid version %q: %w",
				parameters.GetName(), parameters.GetVersion(), err)
		}
		descriptor.Parameterization = &schema.ParameterizationDescriptor{
			Name: parameters.GetName(), Version: version, Value: parameters.GetValue(),
		}
	}
	pkg, err := loader.LoadPackageV2(ctx, descriptor)
	if err != nil {
		return "", "", fmt.Errorf("cannot load the schema of package %s: %w", wanted.GetName(), err)
	}
	if err := pkg.ImportLanguages(map[string]schema.Language{"python": python.Importer}); err != nil {
		return "", "", err
	}
	if info, ok := pkg.Language["python"].(python.PackageInfo); ok && info.PackageName != "" {
		module = info.PackageName
	} else {
		module = python.PyPack(pkg.Namespace, pkg.Name)
	}
	return module, strings.ReplaceAll(pkg.Name, "-", "_"), nil
}

// Pack builds a wheel of a generated package.
func (h *languageHost) Pack(
	ctx context.Context, request *pulumirpc.PackRequest,
) (*pulumirpc.PackResponse, error) {
	before, err := wheelsIn(request.GetDestinationDirectory())
	if err != nil {
		return nil, err
	}
	arguments := []string{"build", "--wheel", "--out-dir", request.GetDestinationDirectory()}
	name := "uv"
	if _, err := exec.LookPath(name); err != nil {
		name, arguments = "python3", []string{
			"-m", "build", "--wheel", "--outdir", request.GetDestinationDirectory(),
		}
	}
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = request.GetPackageDirectory()
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build a wheel with `%s %s` (install uv, or `pip install build`): %w\n%s",
			name, strings.Join(arguments, " "), err, output)
	}
	after, err := wheelsIn(request.GetDestinationDirectory())
	if err != nil {
		return nil, err
	}
	for path, stamp := range after {
		if before[path] != stamp {
			return &pulumirpc.PackResponse{ArtifactPath: path}, nil
		}
	}
	return nil, errors.New("the build succeeded but created no wheel")
}

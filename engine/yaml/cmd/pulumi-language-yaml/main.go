// Command pulumi-language-yaml is the language host for Pulumi YAML programs: Pulumi's own service in a process that
// reads the schemas of packages from the engine.
//
// Pulumi's own command starts the plugins of a program a second time to read their schemas, and looks for the
// language hosts of these plugins next to itself. If it is installed next to the engine, gpuinfra uses it instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/pulumi/pulumi-yaml/pkg/server"
	yamlversion "github.com/pulumi/pulumi-yaml/pkg/version"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

const (
	// healthEvery is the interval of health checks of the engine.
	healthEvery = time.Second
	// parentEvery is the interval at which the host checks that the engine is still its parent process.
	parentEvery = 200 * time.Millisecond
	// yamlModule is the module whose version this host reports to the engine.
	yamlModule = "github.com/pulumi/pulumi-yaml"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "pulumi-language-yaml: %v\n", err)
		os.Exit(1)
	}
}

func serve() error {
	flags := flag.NewFlagSet("pulumi-language-yaml", flag.ContinueOnError)
	tracing := flags.String("tracing", "", "endpoint for tracing data")
	logToStderr := flags.Bool("logtostderr", false, "log to standard error instead of files")
	verbose := flags.Int("v", 0, "verbosity of the log")
	showVersion := flags.Bool("version", false, "print the version of Pulumi's SDK and exit")
	if err := flags.Parse(os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *showVersion {
		fmt.Println(version.Version)
		return nil
	}
	logging.InitLogging(*logToStderr, *verbose, *verbose > 0)
	yamlversion.Version = moduleVersion()

	engine := flags.Arg(0) // absent when the engine only requests the plugin info
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if engine != "" {
		if err := rpcutil.Healthcheck(ctx, engine, healthEvery, leave); err != nil {
			return fmt.Errorf("cannot watch the engine at %q: %w", engine, err)
		}
		go leaveWithParent(ctx, leave)
	}
	cancel := make(chan bool)
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancel,
		Init: func(service *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(service, server.NewLanguageHost(engine, *tracing, true /* useRPCLoader */))
			return nil
		},
		Options: rpcutil.OpenTracingServerInterceptorOptions(nil),
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d\n", handle.Port) // the engine reads the port from the first line

	select {
	case err = <-handle.Done:
	case <-ctx.Done():
		close(cancel)
		select {
		case err = <-handle.Done:
		case <-time.After(healthEvery): // a call that does not return must not block the exit
		}
	}
	return err
}

// leaveWithParent calls leave when the parent of this process changes, which means that the engine was killed.
func leaveWithParent(ctx context.Context, leave context.CancelFunc) {
	parent := os.Getppid()
	ticker := time.NewTicker(parentEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if os.Getppid() != parent {
				leave()
				return
			}
		}
	}
}

// moduleVersion returns the version of pulumi-yaml in this build.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, one := range info.Deps {
			if one.Path == yamlModule {
				return one.Version
			}
		}
	}
	return ""
}

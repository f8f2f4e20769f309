// Package host runs a language host: a gRPC service through which the Pulumi engine runs programs in one language.
//
// It parses the options of the engine, serves until the engine ends, and then ends all child processes.
package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpuinfra/gpuinfra/engine/internal/children"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/version"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

// Options are the values that the engine passes to a host.
type Options struct {
	// Engine is the address of the engine; empty if the engine only requests the plugin info.
	Engine string
	// Tracing is the endpoint of the program's tracing data; empty to disable it.
	Tracing string
	// Folder is the folder of the host's executable.
	Folder   string
	Children *children.Children
}

const (
	// healthEvery is the interval of health checks of the engine.
	healthEvery = time.Second
	// parentEvery is the interval at which the host checks that the engine is still its parent process.
	parentEvery = 200 * time.Millisecond
)

// Main serves the host of a language and exits. create returns the service.
func Main(name string, create func(Options) pulumirpc.LanguageRuntimeServer) {
	if err := serve(name, create); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func serve(name string, create func(Options) pulumirpc.LanguageRuntimeServer) error {
	// A separate flag set: the SDK's log library registers flags of the same names in the default one.
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	tracing := flags.String("tracing", "", "endpoint for tracing data; passed to the program")
	logToStderr := flags.Bool("logtostderr", false, "log to standard error instead of files")
	verbose := flags.Int("v", 0, "verbosity of the log")
	showVersion := flags.Bool("version", false, "print the version and exit")
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

	folder, err := folderOfExecutable()
	if err != nil {
		return err
	}
	running := children.New()
	service := create(Options{Engine: engine, Tracing: *tracing, Folder: folder, Children: running})
	cancel := make(chan bool)
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancel,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(server, service)
			return nil
		},
		Options: rpcutil.TracingServerInterceptorOptions(nil),
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d\n", handle.Port) // the engine reads the port from the first line

	select {
	case err = <-handle.Done:
	case <-ctx.Done():
		// End the children first: a graceful stop waits for calls, and calls wait for children.
		running.EndAll()
		close(cancel)
		select {
		case err = <-handle.Done:
		case <-time.After(children.Grace): // a call that does not return must not block the exit
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

// folderOfExecutable returns the folder of this program, which can also contain files that the host uses.
func folderOfExecutable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find this program's own path: %w", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return filepath.Dir(path), nil
}

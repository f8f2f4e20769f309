//go:build !linux && !windows

package children

import (
	"os/exec"
	"syscall"
)

// leadGroup makes the command the leader of a new process group.
func leadGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// keepThread does nothing: death signals exist on Linux only.
func keepThread() func() { return func() {} }

// signalGroup sends SIGTERM or SIGKILL to the process group of the command.
func signalGroup(command *exec.Cmd, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	// An error means that the group has already ended.
	_ = syscall.Kill(-command.Process.Pid, signal)
}

//go:build !linux && !windows

package main

import (
	"os/exec"
	"syscall"
)

// leadGroup makes the command the leader of a new process group.
func leadGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// keepThread has nothing to keep: death signals are Linux's.
func keepThread() func() { return func() {} }

// signalGroup asks the command's group to leave, or kills it.
func signalGroup(command *exec.Cmd, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	// An error means that the group is gone, which is what was wanted.
	_ = syscall.Kill(-command.Process.Pid, signal)
}

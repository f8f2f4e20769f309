package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// leadGroup makes the command the leader of a new process group, which the kernel ends with this host even when the host
// is killed.
func leadGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// keepThread keeps the calling goroutine on its thread: Linux sends a child's death signal when the thread that
// started it ends, not the process.
func keepThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// signalGroup sends SIGTERM to the command's group, or SIGKILL.
func signalGroup(command *exec.Cmd, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	// An error means that the group has already ended.
	_ = syscall.Kill(-command.Process.Pid, signal)
}

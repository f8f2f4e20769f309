package children

import (
	"os/exec"
	"runtime"
	"syscall"
)

// leadGroup makes the command the leader of a new process group. The kernel ends the command when this host exits, even
// if the host is killed.
func leadGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// keepThread locks the calling goroutine to its thread: Linux sends the parent death signal when the thread that
// started the child ends, not when the process ends.
func keepThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// signalGroup sends SIGTERM or SIGKILL to the process group of the command.
func signalGroup(command *exec.Cmd, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	// An error means that the group has already ended.
	_ = syscall.Kill(-command.Process.Pid, signal)
}

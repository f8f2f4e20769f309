// Package children starts processes that end together with the language host.
package children

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

const (
	// Grace is the time between SIGTERM and SIGKILL.
	Grace = 2 * time.Second
	// graceOfOutput limits the wait while descendants of a child keep its output open.
	graceOfOutput = 2 * time.Second
)

// ErrLeaving is returned to calls during shutdown.
var ErrLeaving = errors.New("the language host is shutting down because the engine ended")

// Kind distinguishes programs from plugins. Programs end when the engine cancels. Plugins are canceled by the engine
// itself and may still be saving their state.
type Kind int

const (
	// Program is a Pulumi program.
	Program Kind = iota
	// Plugin is a provider.
	Plugin
)

// child is a child process that leads its own process group. The host can therefore end it together with its
// descendants, and an interrupt at the terminal reaches the engine only.
type child struct {
	command *exec.Cmd
	kind    Kind
	done    chan struct{}
}

// Children are the processes that this host ends before it exits.
type Children struct {
	mutex   sync.Mutex
	running map[*child]struct{}
	closed  bool
}

// New returns no children.
func New() *Children {
	return &Children{running: map[*child]struct{}{}}
}

// Run starts the command, waits for it, and returns its error like exec.Cmd.Run.
// When stop is closed, the child gets SIGTERM, and SIGKILL after the grace period.
func (c *Children) Run(command *exec.Cmd, kind Kind, stop <-chan struct{}) error {
	leadGroup(command)
	command.WaitDelay = graceOfOutput
	one := &child{command: command, kind: kind, done: make(chan struct{})}

	c.mutex.Lock()
	if c.closed {
		c.mutex.Unlock()
		return ErrLeaving
	}
	unlock := keepThread() // the death signal of a child is bound to the thread that started it
	defer unlock()
	if err := command.Start(); err != nil {
		c.mutex.Unlock()
		return err
	}
	c.running[one] = struct{}{}
	c.mutex.Unlock()

	go func() {
		select {
		case <-stop:
			one.end()
		case <-one.done:
		}
	}()
	err := command.Wait()
	close(one.done)
	c.mutex.Lock()
	delete(c.running, one)
	c.mutex.Unlock()
	return err
}

// end sends SIGTERM to the child, and kills its group after the grace period.
func (c *child) end() {
	signalGroup(c.command, false)
	select {
	case <-c.done:
	case <-time.After(Grace):
	}
	signalGroup(c.command, true) // also kills remaining descendants in the group
}

// EndPrograms ends the running programs but not the plugins.
func (c *Children) EndPrograms() { c.endWhere(func(k Kind) bool { return k == Program }) }

// EndAll ends all children and prevents new ones.
func (c *Children) EndAll() {
	c.mutex.Lock()
	c.closed = true
	c.mutex.Unlock()
	c.endWhere(func(Kind) bool { return true })
}

func (c *Children) endWhere(wanted func(Kind) bool) {
	c.mutex.Lock()
	var chosen []*child
	for one := range c.running {
		if wanted(one.kind) {
			chosen = append(chosen, one)
		}
	}
	c.mutex.Unlock()
	var wait sync.WaitGroup
	for _, one := range chosen {
		wait.Go(one.end)
	}
	wait.Wait()
}

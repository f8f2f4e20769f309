package main

import (
	"os/exec"
	"sync"
	"time"
)

const (
	// graceOfChildren is the time between SIGTERM and SIGKILL.
	graceOfChildren = 2 * time.Second
	// graceOfOutput limits the wait while descendants of a child keep its output open.
	graceOfOutput = 2 * time.Second
)

// kind distinguishes programs from plugins. Programs end when the engine cancels. Plugins are canceled by the engine
// itself and may still be saving their state.
type kind int

const (
	program kind = iota
	plugin
)

// child is a child process that leads its own process group. The host can therefore end it together with its
// descendants, and an interrupt at the terminal reaches the engine only.
type child struct {
	command *exec.Cmd
	kind    kind
	done    chan struct{}
}

// children are the processes that this host ends before it exits.
type children struct {
	mutex   sync.Mutex
	running map[*child]struct{}
	closed  bool
}

func newChildren() *children {
	return &children{running: map[*child]struct{}{}}
}

// run starts the command, waits for it, and returns its error like exec.Cmd.Run.
// When stop is closed, the child gets SIGTERM, and SIGKILL after the grace period.
func (c *children) run(command *exec.Cmd, kind kind, stop <-chan struct{}) error {
	leadGroup(command)
	command.WaitDelay = graceOfOutput
	one := &child{command: command, kind: kind, done: make(chan struct{})}

	c.mutex.Lock()
	if c.closed {
		c.mutex.Unlock()
		return errLeaving
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
	case <-time.After(graceOfChildren):
	}
	signalGroup(c.command, true) // also kills remaining descendants in the group
}

// endPrograms ends the running programs but not the plugins.
func (c *children) endPrograms() { c.endWhere(func(k kind) bool { return k == program }) }

// endAll ends all children and prevents new ones.
func (c *children) endAll() {
	c.mutex.Lock()
	c.closed = true
	c.mutex.Unlock()
	c.endWhere(func(kind) bool { return true })
}

func (c *children) endWhere(wanted func(kind) bool) {
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

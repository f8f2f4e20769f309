package main

import (
	"os/exec"
	"sync"
	"time"
)

const (
	// graceOfChildren is how long a child may take to leave after it was asked to, before it is killed.
	graceOfChildren = 2 * time.Second
	// graceOfOutput bounds the wait for output that a child's own children may hold open.
	graceOfOutput = 2 * time.Second
)

// kind tells programs, which end when the engine cancels, from plugins, which the engine cancels itself and which
// must stay to save what they were doing.
type kind int

const (
	program kind = iota
	plugin
)

// child is a process that this host started, as the leader of a process group of its own, so that it can be ended
// with everything it started, and so that a terminal's interrupt reaches the engine alone.
type child struct {
	command *exec.Cmd
	kind    kind
	done    chan struct{}
}

// children are the processes that this host has to end before it leaves.
type children struct {
	mutex   sync.Mutex
	running map[*child]struct{}
	closed  bool
}

func newChildren() *children {
	return &children{running: map[*child]struct{}{}}
}

// run starts the command, waits for it, and returns its error as exec.Cmd's Run does.
// When stop is closed the child is asked to leave, and killed when it does not.
func (c *children) run(command *exec.Cmd, kind kind, stop <-chan struct{}) error {
	leadGroup(command)
	command.WaitDelay = graceOfOutput
	one := &child{command: command, kind: kind, done: make(chan struct{})}

	c.mutex.Lock()
	if c.closed {
		c.mutex.Unlock()
		return errLeaving
	}
	unlock := keepThread() // a child's death signal is bound to the thread that started it
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

// end asks the child to leave, and kills its group when it does not.
func (c *child) end() {
	signalGroup(c.command, false)
	select {
	case <-c.done:
	case <-time.After(graceOfChildren):
	}
	signalGroup(c.command, true) // also what the child left behind in its group
}

// endPrograms ends the running programs and leaves the plugins.
func (c *children) endPrograms() { c.endWhere(func(k kind) bool { return k == program }) }

// endAll ends everything and refuses to start anything more.
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

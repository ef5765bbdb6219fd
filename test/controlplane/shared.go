package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Shared is a control plane that the tests of a package use one after another. It starts when the
// first test asks for it; each test gets it with the objects of the beginning and no others.
//
//	var shared controlplane.Shared
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }
type Shared struct {
	// Options says what it consists of.
	Options Options
	// Prepare makes the objects that all tests find; nil makes none.
	Prepare func(context.Context, *ControlPlane) error

	mu    sync.Mutex // guards what follows
	base  *ControlPlane
	state map[string]string // the objects of the beginning, as etcdKeys returns them
	user  string            // the test that has it
}

// Run runs the tests of a package, ends the control planes they share and returns the exit code.
func Run(m *testing.M, shared ...*Shared) int {
	code := m.Run()
	for _, s := range shared {
		if err := s.discard(); err != nil {
			fmt.Fprintln(os.Stderr, "stop a shared control plane:", err)
			code = 1
		}
	}
	return code
}

// StartT is the function StartT for a test that shares its control plane with those before and after
// it: a Tenant. After all that the test itself cleans up, its processes are stopped and its objects
// removed. Where that fails the test fails, and the next one gets a new control plane.
func (s *Shared) StartT(t testing.TB) *ControlPlane {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.user, "has the shared control plane")
	require.NoError(t, s.start(t.Context()))
	base := s.base
	tenant, err := base.Tenant()
	require.NoError(t, err)
	s.user = t.Name()
	t.Cleanup(func() {
		assert.NoError(t, s.leave(tenant, t.Failed()), "leave the shared control plane")
		if t.Failed() {
			t.Logf("logs: %s, of the control plane: %s", tenant.LogDir(), base.LogDir())
		}
	})
	return tenant
}

func (s *Shared) start(ctx context.Context) error {
	if s.base != nil {
		return nil
	}
	base, err := Start(ctx, s.Options)
	if err != nil {
		return err
	}
	if s.Prepare != nil {
		err = s.Prepare(ctx, base)
	}
	var state map[string]string
	if err == nil {
		state, err = base.etcdKeys(ctx)
	}
	if err != nil {
		return errors.Join(err, base.Stop())
	}
	s.base, s.state = base, state
	return nil
}

// leave ends a test's use of the control plane.
func (s *Shared) leave(tenant *ControlPlane, failed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user = ""
	if failed {
		tenant.KeepLogs()
		s.base.KeepLogs()
	}
	err := errors.Join(tenant.Stop(), s.base.reset(context.Background(), s.state))
	if err == nil {
		return nil
	}
	s.base.KeepLogs()
	base := s.base
	s.base = nil
	return errors.Join(err, base.Stop())
}

func (s *Shared) discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		return nil
	}
	base := s.base
	s.base = nil
	return base.Stop()
}

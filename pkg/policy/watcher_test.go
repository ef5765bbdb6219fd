package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/leaks"
)

const patience = 10 * time.Second

// configMap is a directory as the kubelet mounts a ConfigMap into it.
type configMap struct {
	t       *testing.T
	dir     string
	version int
}

func newConfigMap(t *testing.T, content string) *configMap {
	c := &configMap{t: t, dir: t.TempDir()}
	c.update(content)
	require.NoError(t, os.Symlink(filepath.Join(kubeletData, "policy.yaml"), c.path()))
	return c
}

func (c *configMap) path() string { return filepath.Join(c.dir, "policy.yaml") }

// update does what the kubelet does: a new directory, a new symlink to it, renamed over ..data.
func (c *configMap) update(content string) {
	c.t.Helper()
	c.version++
	data := fmt.Sprintf("..2026_01_02_%d", c.version)
	require.NoError(c.t, os.Mkdir(filepath.Join(c.dir, data), 0o750))
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, data, "policy.yaml"), []byte(content), 0o600))
	require.NoError(c.t, os.Symlink(data, filepath.Join(c.dir, "..data_tmp")))
	require.NoError(c.t, os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, kubeletData)))
	if c.version > 1 {
		require.NoError(c.t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("..2026_01_02_%d", c.version-1))))
	}
}

// watched is a running Watcher with its callbacks as channels.
type watched struct {
	*Watcher
	stop    func() // ends Run
	store   *Store
	reloads chan *Policy
	errors  chan error
}

func watch(t *testing.T, path string, poll time.Duration) *watched {
	t.Helper()
	w := &watched{
		store:   NewStore(Default(), time.Minute),
		reloads: make(chan *Policy, 100),
		errors:  make(chan error, 100),
	}
	w.Watcher = NewWatcher(w.store, path, func(p *Policy) { w.reloads <- p }, func(err error) { w.errors <- err })
	w.poll = poll
	require.NoError(t, w.Load())
	w.stop = background.Run(t, w.Run)
	receive(t, w.reloads) // the first load
	return w
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.Fail(t, "nothing was reported in time")
		panic("not reached")
	}
}

func withTTL(ttl string) string { return head + "reservations: {defaultTTL: " + ttl + "}\n" }

func TestWatcherSeesKubeletSwap(t *testing.T) {
	defer leaks.None(t)
	mount := newConfigMap(t, withTTL("1s"))
	w := watch(t, mount.path(), time.Hour)
	defer w.stop()
	assert.Equal(t, time.Second, w.store.Current().Reservations.DefaultTTL.Duration)
	for i := 2; i < 6; i++ {
		mount.update(withTTL(fmt.Sprintf("%ds", i)))
		p := receive(t, w.reloads)
		assert.Equal(t, time.Duration(i)*time.Second, p.Reservations.DefaultTTL.Duration)
		assert.Same(t, p, w.store.Current(), "in force before it is reported")
	}
	assert.Empty(t, w.errors)
}

func TestWatcherKeepsLastGood(t *testing.T) {
	mount := newConfigMap(t, withTTL("1s"))
	w := watch(t, mount.path(), time.Hour)

	mount.update(withTTL("forever"))
	err := receive(t, w.errors)
	require.ErrorContains(t, err, "the policy before stays in force")
	require.ErrorContains(t, err, mount.path())
	require.ErrorContains(t, err, "invalid duration")
	assert.Equal(t, time.Second, w.store.Current().Reservations.DefaultTTL.Duration)

	mount.update(withTTL("2s"))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)
	assert.Empty(t, w.errors, "one change, one error")
}

func TestWatcherPlainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(withTTL("1s")), 0o600))
	w := watch(t, path, time.Hour)

	require.NoError(t, os.WriteFile(path+".new", []byte(withTTL("2s")), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)

	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, receive(t, w.errors), "no such file")
	assert.Equal(t, 2*time.Second, w.store.Current().Reservations.DefaultTTL.Duration)

	require.NoError(t, os.WriteFile(path+".new", []byte(withTTL("2s")), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration, "its return is reported")
}

// TestWatcherPolls changes a file that no event in the watched directory tells of: it is reached
// through a symlink to somewhere else.
func TestWatcherPolls(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	require.NoError(t, os.WriteFile(elsewhere, []byte(withTTL("1s")), 0o600))
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.Symlink(elsewhere, path))
	w := watch(t, path, time.Millisecond)

	require.NoError(t, os.WriteFile(elsewhere+".new", []byte(withTTL("bad")), 0o600))
	require.NoError(t, os.Rename(elsewhere+".new", elsewhere))
	require.ErrorContains(t, receive(t, w.errors), "invalid duration")
	require.NoError(t, os.WriteFile(elsewhere+".new", []byte(withTTL("2s")), 0o600))
	require.NoError(t, os.Rename(elsewhere+".new", elsewhere))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)
	assert.Empty(t, w.errors, "a bad file is reported once, however often it is polled")
}

func TestWatcherLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	store := NewStore(Default(), time.Minute)
	load := func() error { return NewWatcher(store, path, func(*Policy) {}, func(error) {}).Load() }
	require.ErrorContains(t, load(), "no such file", "a missing file at start is an error")

	require.NoError(t, os.WriteFile(path, []byte(withTTL("-1s")), 0o600))
	require.ErrorContains(t, load(), "must be longer than 0s")
	assert.Equal(t, Default(), store.Current())

	require.NoError(t, os.WriteFile(path, []byte(withTTL("3s")), 0o600))
	require.NoError(t, load())
	assert.Equal(t, 3*time.Second, store.Current().Reservations.DefaultTTL.Duration)
}

// A change between Load and Run is not missed.
func TestWatcherChangeBeforeRun(t *testing.T) {
	defer leaks.None(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(withTTL("3s")), 0o600))
	reloads := make(chan *Policy, 2)
	w := NewWatcher(NewStore(Default(), time.Minute), path, func(p *Policy) { reloads <- p }, func(error) {})
	require.NoError(t, w.Load())
	receive(t, reloads)
	require.NoError(t, os.WriteFile(path, []byte(withTTL("4s")), 0o600))
	defer background.Run(t, w.Run)()
	assert.Equal(t, 4*time.Second, receive(t, reloads).Reservations.DefaultTTL.Duration)
}

// TestWatcherReportsAChangeOnce looks at the file many times between its changes, as polling does.
func TestWatcherReportsAChangeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	var reloads []time.Duration
	failures := 0
	w := NewWatcher(NewStore(Default(), time.Minute), path,
		func(p *Policy) { reloads = append(reloads, p.Reservations.DefaultTTL.Duration) }, func(error) { failures++ })
	for _, ttl := range []string{"1s", "bad", "worse", "2s", "2s"} {
		require.NoError(t, os.WriteFile(path, []byte(withTTL(ttl)), 0o600))
		for range 3 {
			w.check()
		}
	}
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second}, reloads)
	assert.Equal(t, 2, failures)
}

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

const patience = time.Minute

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

// replace has a file hold something else, all at once.
func replace(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

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

	mount.update(withTTL("forever"))
	err := receive(t, w.errors)
	require.ErrorContains(t, err, "the policy before stays in force")
	require.ErrorContains(t, err, mount.path())
	require.ErrorContains(t, err, "invalid duration")
	assert.Equal(t, 5*time.Second, w.store.Current().Reservations.DefaultTTL.Duration)
	mount.update(withTTL("6s"))
	assert.Equal(t, 6*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)
	assert.Empty(t, w.errors, "one change, one error")
}

func TestWatcherPlainFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	replace(t, path, withTTL("1s"))
	w := watch(t, path, time.Hour)
	replace(t, path, withTTL("2s"))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)

	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, receive(t, w.errors), "no such file")
	assert.Equal(t, 2*time.Second, w.store.Current().Reservations.DefaultTTL.Duration)
	replace(t, path, withTTL("2s"))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration, "its return is reported")
}

// TestWatcherPolls changes a file that no event in the watched directory tells of: it is reached
// through a symlink to somewhere else.
func TestWatcherPolls(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	replace(t, elsewhere, withTTL("1s"))
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.Symlink(elsewhere, path))
	w := watch(t, path, time.Millisecond)
	replace(t, elsewhere, withTTL("bad")) // it may be seen as Run begins, without polling; what comes after may not
	require.ErrorContains(t, receive(t, w.errors), "invalid duration")
	replace(t, elsewhere, withTTL("2s"))
	assert.Equal(t, 2*time.Second, receive(t, w.reloads).Reservations.DefaultTTL.Duration)
	assert.Empty(t, w.errors, "a bad file is reported once, however often it is polled")
}

// What cannot be read at the start is an error. A change between Load and Run is not missed.
func TestWatcherLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	store := NewStore(Default(), time.Minute)
	reloads := make(chan *Policy, 2)
	w := NewWatcher(store, path, func(p *Policy) { reloads <- p }, func(error) {})
	require.ErrorContains(t, w.Load(), "no such file")
	replace(t, path, withTTL("-1s"))
	require.ErrorContains(t, w.Load(), "must be longer than 0s")
	assert.Equal(t, Default(), store.Current())
	replace(t, path, withTTL("3s"))
	require.NoError(t, w.Load())
	assert.Equal(t, 3*time.Second, receive(t, reloads).Reservations.DefaultTTL.Duration)

	replace(t, path, withTTL("4s"))
	background.Run(t, w.Run)
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

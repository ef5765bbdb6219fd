package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/background"
)

// mounted is a directory as the kubelet mounts a ConfigMap into it (the AtomicWriter of
// k8s.io/kubernetes/pkg/volume/util), and what a Watcher reports of the file in it.
type mounted struct {
	*Watcher
	t       *testing.T
	dir     string
	version int
	reloads []time.Duration // the TTLs of the policies
	errors  []string
}

func newMounted(t *testing.T, content string) *mounted {
	t.Helper()
	m := &mounted{t: t, dir: t.TempDir()}
	path := filepath.Join(m.dir, "policy.yaml")
	m.Watcher = NewWatcher(NewStore(Default(), time.Minute), path, func(p *Policy) {
		assert.Same(t, p, m.store.Current(), "in force before it is reported")
		m.reloads = append(m.reloads, p.Reservations.DefaultTTL.Duration)
	}, func(err error) { m.errors = append(m.errors, err.Error()) })
	m.swap(content)
	require.NoError(t, os.Symlink(filepath.Join("..data", "policy.yaml"), path))
	return m
}

// swap does what the kubelet does: a new directory, a new symlink to it, renamed over ..data.
func (m *mounted) swap(content string) {
	m.t.Helper()
	m.version++
	data := fmt.Sprintf("..2026_01_02_%d", m.version)
	require.NoError(m.t, os.Mkdir(filepath.Join(m.dir, data), 0o750))
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, data, "policy.yaml"), []byte(content), 0o600))
	require.NoError(m.t, os.Symlink(data, filepath.Join(m.dir, "..data_tmp")))
	require.NoError(m.t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if m.version > 1 {
		require.NoError(m.t, os.RemoveAll(filepath.Join(m.dir, fmt.Sprintf("..2026_01_02_%d", m.version-1))))
	}
}

// run has the Watcher read the file so many times.
func (m *mounted) run(looks int) {
	m.t.Helper()
	stop := background.Run(m.t, m.Run)
	<-time.After(time.Duration(looks)*pollInterval + 1)
	stop()
}

func withTTL(ttl string) string { return head + "reservations: {defaultTTL: " + ttl + "}\n" }

// A change is in force when two looks have found it, and is reported once, however often the file is read.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounted(t, withTTL("1s"))
		require.NoError(t, m.Load())
		m.swap(withTTL("2s")) // between Load and Run
		m.run(2)
		for _, ttl := range []string{"3s", "bad", "worse", "4s", "4s"} {
			m.swap(withTTL(ttl))
			m.run(1)
			m.swap(withTTL(ttl + " # written on"))
			m.run(1)
			m.swap(withTTL(ttl))
			m.run(5)
		}
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}, m.reloads)
		require.Len(t, m.errors, 2)
		for _, text := range []string{"the policy before stays in force", m.path, "invalid duration"} {
			assert.Contains(t, m.errors[0], text)
		}

		require.NoError(t, os.Remove(m.path))
		m.run(3)
		require.Len(t, m.errors, 3)
		assert.Contains(t, m.errors[2], "no such file")
		assert.Equal(t, 4*time.Second, m.store.Current().Reservations.DefaultTTL.Duration)
		require.NoError(t, os.WriteFile(m.path, []byte(withTTL("4s")), 0o600))
		m.run(3)
		assert.Len(t, m.reloads, 5, "its return is reported")
	})
}

// What cannot be read at the start is an error.
func TestWatcherLoad(t *testing.T) {
	m := newMounted(t, withTTL("-1s"))
	require.ErrorContains(t, m.Load(), "must be longer than 0s")
	require.NoError(t, os.Remove(m.path))
	require.ErrorContains(t, m.Load(), "no such file")
	assert.Equal(t, Default(), m.store.Current())
	require.NoError(t, os.WriteFile(m.path, []byte(withTTL("3s")), 0o600))
	require.NoError(t, m.Load())
	assert.Equal(t, []time.Duration{3 * time.Second}, m.reloads)
}

//go:build e2e

package election

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// A pod has a node. etcd is backed up, the pod is deleted, and etcd is restored: the pod is there again, and no watch
// tells of it. Servers that knew it to be gone decide no more, and those that start anew give its node to nobody.
func TestEtcdIsRestored(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := newCluster(t, cp, 1)
	c.start("first", nil)
	c.start("second", nil)
	old, next := c.CreatePod("old", nobody, "4"), c.CreatePod("next", nobody, "4")
	require.NoError(t, c.BindDirectly(old.Name, c.nodes[0]))
	c.requireNoDifference("a pod is bound")
	backup := c.backUp()
	require.NoError(t, c.Client().CoreV1().Pods(c.Namespace).Delete(t.Context(), old.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	c.requireNoDifference("the pod is gone")
	c.age(next)
	for range 2 { // one that stands by looks several times in between
		version := c.leaseVersion()
		c.Eventually(func(t *assert.CollectT) { assert.NotEqual(t, version, c.leaseVersion(), "it is renewed") })
	}

	c.restore(backup)
	for _, server := range c.servers {
		c.Eventually(func(t *assert.CollectT) { assert.False(t, server.Running(), "it has ended itself") })
	}
	c.revive()
	refusal, err := bindAt(t.Context(), c.leader(), next, c.nodes[0])
	require.NoError(t, err)
	assert.Contains(t, refusal, "too little cpu")
}

// backUp copies what etcd has.
func (c *cluster) backUp() (backup string) {
	c.T.Helper()
	etcd, err := c.Process(controlplane.Etcd)
	require.NoError(c.T, err)
	backup = filepath.Join(c.T.TempDir(), "backup")
	require.NoError(c.T, etcd.Signal(syscall.SIGSTOP))
	err = os.CopyFS(backup, os.DirFS(c.etcdDir()))
	require.NoError(c.T, etcd.Signal(syscall.SIGCONT))
	require.NoError(c.T, err)
	return backup
}

// restore has etcd begin with a backup, as administrators do it: the API server is stopped meanwhile.
func (c *cluster) restore(backup string) {
	c.T.Helper()
	for _, part := range []string{controlplane.APIServer, controlplane.Etcd} {
		require.NoError(c.T, c.Kill(part))
	}
	require.NoError(c.T, os.RemoveAll(c.etcdDir()))
	require.NoError(c.T, os.CopyFS(c.etcdDir(), os.DirFS(backup)))
	for _, part := range []string{controlplane.Etcd, controlplane.APIServer} {
		require.NoError(c.T, c.StartPart(c.T.Context(), part))
	}
}

// age makes what was backed up before older than what an API server writes when it starts.
func (c *cluster) age(pod *corev1.Pod) {
	c.T.Helper()
	for i := range 300 {
		_, err := c.Client().CoreV1().Pods(pod.Namespace).Patch(c.T.Context(), pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"age":"%d"}}}`, i), metav1.PatchOptions{})
		require.NoError(c.T, err)
	}
}

func (c *cluster) leaseVersion() string {
	c.T.Helper()
	lease, err := c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).Get(c.T.Context(), election.LeaseName,
		metav1.GetOptions{})
	require.NoError(c.T, err)
	return lease.ResourceVersion
}

func (c *cluster) etcdDir() string { return filepath.Join(c.Dir(), "etcd") }

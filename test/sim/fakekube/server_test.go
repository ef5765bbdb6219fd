package fakekube

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdclient "go.etcd.io/etcd/client/v3/kubernetes"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// What is older than the latest compaction cannot be watched any more, and what is older than the latest change not
// be deleted.
func TestCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		etcd := NewEtcd()
		client := etcd.client(ctx, &atomic.Int64{})
		first, err := client.Kubernetes.OptimisticPut(ctx, "/a", []byte("1"), 0, etcdclient.PutOptions{})
		require.NoError(t, err)
		_, err = client.Kubernetes.OptimisticPut(ctx, "/a", []byte("2"), first.Revision, etcdclient.PutOptions{})
		require.NoError(t, err)
		etcd.Compact()
		said := <-client.Watch(ctx, "/a", clientv3.WithRev(first.Revision))
		assert.ErrorIs(t, said.Err(), rpctypes.ErrCompacted)
		conflict, err := client.Kubernetes.OptimisticDelete(ctx, "/a", first.Revision,
			etcdclient.DeleteOptions{GetOnFailure: true})
		require.NoError(t, err)
		assert.False(t, conflict.Succeeded)
		assert.Equal(t, "2", string(conflict.KV.Value))
	})
}

// Events go when their time is over.
func TestEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(NewEtcd(), nil, nil)
		require.NoError(t, err)
		defer s.Close()
		core, err := kubernetes.NewForConfig(s.Config("tester"))
		require.NoError(t, err)
		events := core.EventsV1().Events("default")
		_, err = events.Create(t.Context(), &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, EventTime: metav1.NowMicro(), Reason: "Tested", Action: "Test",
			Type: v1.EventTypeNormal, ReportingController: "test", ReportingInstance: "test",
			Regarding: v1.ObjectReference{Namespace: "default", Name: "web"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(eventTTL + 2*time.Minute)
		// A write is when etcd looks.
		_, err = core.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = events.Get(t.Context(), "one", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err))
	})
}

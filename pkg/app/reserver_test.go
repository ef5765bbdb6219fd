package app

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// A program that has the server in its process reserves by it, and is told while it does not decide, and when it stops.
func TestServerInTheSameProcess(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	a, err := New(testOptions(), testClients(fake.NewClientset(testNode("a"), pod)), io.Discard)
	require.NoError(t, err)
	request := &reserver.Request{SchedulerName: "s", Pods: []*v1.Pod{pod}, Nodes: []string{"a"}}
	bind := &extenderv1.ExtenderBindingArgs{PodNamespace: "default", PodName: "p", PodUID: "u", Node: "a"}
	requireAway := func() {
		_, err := a.Reserver().Reserve(t.Context(), request)
		require.ErrorAs(t, err, new(*reserver.UnavailableError))
		_, err = a.Reserver().Revision(t.Context())
		require.ErrorAs(t, err, new(*reserver.UnavailableError))
		require.ErrorAs(t, a.BindNamed(t.Context(), bind), new(*reserver.UnavailableError))
	}
	requireAway()
	info := &cluster.Pod{Ref: ledger.PodRef{Namespace: "default", Name: "p", UID: "u"}}
	require.ErrorContains(t, a.Arbiter().BindKnown(t.Context(), info, "a"), "no server decides now")

	require.NoError(t, a.Start(t.Context()))
	require.NoError(t, a.WaitReady(t.Context()))
	revision, err := a.Reserver().Revision(t.Context())
	require.NoError(t, err)
	assert.Equal(t, a.Ledger().Revision(), revision)
	inMemory := *request
	inMemory.Durable = new(bool)
	answer, err := a.Reserver().Reserve(t.Context(), &inMemory)
	require.NoError(t, err)
	assert.True(t, answer.Granted(), "%+v", answer)
	watcher, err := a.Reserver().Watch(t.Context(), reserver.WatchOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Stop(context.Background()))
	for range watcher.Events() { // closed by the stop
	}
	requireAway()
}

package schedulerplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func TestWhileNothingCanBeDecided(t *testing.T) {
	pod := newPod("p", "1")
	t.Run("starting", func(t *testing.T) {
		f := newFixture(t)
		f.known(pod)
		f.unready.Store(true)
		assert.Equal(t, fwk.UnschedulableAndUnresolvable, f.PreEnqueue(t.Context(), pod).Code())
		_, status := f.PreFilter(t.Context(), newState(), pod, nil)
		assert.Equal(t, "GlobalReserve: the ledger is not complete yet", status.Message())
		f.unready.Store(false)
		f.waker.wakeIfReady()
		assert.Equal(t, "ns/p", f.woken())
		assert.Nil(t, f.PreEnqueue(t.Context(), pod))
	})
	t.Run("the lease is lost before Reserve", func(t *testing.T) {
		f := newFixture(t)
		f.known(pod)
		state := f.begin(pod)
		f.unready.Store(true)
		assert.Equal(t, notNow(), f.Reserve(t.Context(), state, pod, "a"), "a constant text, without the cause")
		f.Unreserve(t.Context(), state, pod, "a")
		assert.Equal(t, "-", f.on(pod))
		f.unready.Store(false)
		f.waker.wakeIfReady()
		assert.Equal(t, "ns/p", f.woken())
	})
}

// Pods that another scheduler has bound while this one stood by, or that were deleted, are not kept in mind.
func TestPodsThatDoNotWaitAnyMore(t *testing.T) {
	f := newFixture(t)
	f.unready.Store(true)
	pods := map[string]*v1.Pod{}
	for _, name := range []string{"bound", "deleted", "missed", "waits"} {
		pods[name] = newPod(name, "1")
		f.known(pods[name])
		require.False(t, f.PreEnqueue(t.Context(), pods[name]).IsSuccess())
	}
	bound := pods["bound"].DeepCopy()
	bound.Spec.NodeName = "a"
	f.waker.updated(pods["bound"], bound)
	f.waker.deleted(pods["deleted"])
	f.waker.deleted(cache.DeletedFinalStateUnknown{Obj: pods["missed"]})
	changed := pods["waits"].DeepCopy()
	changed.Labels = nil
	f.waker.updated(pods["waits"], changed)
	f.unready.Store(false)
	require.Len(t, f.waker.awaiting, 1)
	f.waker.wakeIfReady()
	assert.Equal(t, "ns/waits", f.woken())
}

// Nor are those that were refused, or lost a race: what is freed would be looked at for them for ever.
func TestRefusedPodsThatAreGone(t *testing.T) {
	f := newFixture(t)
	pod := newPod("p", "1")
	info, err := f.read(pod)
	require.NoError(t, err)
	f.waker.again(info, ledger.Fits, time.Hour)
	f.waker.waiting.Await(info, f.server.ledger.Revision(), nil, false)
	require.True(t, f.waker.lost(pod.UID))
	require.NotEmpty(t, f.waker.waiting.LastCaller(pod.UID))
	f.waker.deleted(pod)
	assert.False(t, f.waker.lost(pod.UID))
	assert.Empty(t, f.waker.waiting.LastCaller(pod.UID))
}

// Pods that wait for the ledger are tried again whenever it can be decided on.
func TestReadinessIsTold(t *testing.T) {
	f := newFixture(t)
	f.unready.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	plugins := f.plugins(ctx)
	made, err := plugins.New(ctx, &runtime.Unknown{Raw: []byte(`{}`)}, f.handle)
	require.NoError(t, err)
	pod := newPod("p", "1")
	f.known(pod)
	info, err := f.read(pod)
	require.NoError(t, err)
	changes := func() []*logrus.Entry {
		return slices.DeleteFunc(f.world.Logs.AllEntries(), func(e *logrus.Entry) bool {
			return !strings.HasSuffix(e.Message,
				"be made on the ledger")
		})
	}
	said := func(want int) func() bool { return func() bool { return len(changes()) == want } }
	for i := range 2 {
		made.(*Plugin).waker.await(info)
		f.unready.Store(false)
		assert.Equal(t, "ns/p", f.woken())
		require.Eventually(t, said(2*i+1), time.Minute, time.Millisecond)
		f.unready.Store(true)
		require.Eventually(t, said(2*i+2), time.Minute, time.Millisecond)
	}
	cancel()
	require.NoError(t, plugins.Wait())
	assert.Len(t, changes(), 4, "each time once")
}

// Nobody sees a moment in which nothing can be decided and that is over before the next look. The pods that came in it
// are tried again all the same.
func TestAMomentUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		plugins := f.plugins(ctx)
		made, err := plugins.New(ctx, &runtime.Unknown{Raw: []byte(`{}`)}, f.handle)
		require.NoError(t, err)
		<-time.After(2 * lookEvery)
		pod := newPod("p", "1")
		f.known(pod)
		f.unready.Store(true)
		_, status := made.(*Plugin).PreFilter(ctx, newState(), pod, nil)
		require.Equal(t, notNow(), status)
		f.unready.Store(false)
		<-time.After(2 * lookEvery)
		synctest.Wait()
		require.NotEmpty(t, f.handle.activated)
		assert.Equal(t, "ns/p", <-f.handle.activated)
		cancel()
		require.NoError(t, plugins.Wait())
		f.waker.stop()
	})
}

// An error of a bind that may have happened is not one of a refusal.
func TestBindThatMayHaveHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := newPod("p", "1")
		f.known(pod)
		state := f.begin(pod)
		f.api.fail = errors.New("the answer was lost")
		status := f.Bind(t.Context(), state, pod, "a")
		assert.Equal(t, fwk.Error, status.Code())
		assert.Contains(t, status.Message(), "it is not known yet whether pod ns/p was bound")
	})
}

// A profile that binds past the plugin is logged, once.
func TestAnotherPluginBinds(t *testing.T) {
	f := newFixture(t)
	log, told := logtest.NewNullLogger()
	f.log = log
	for i := range 3 {
		pod := newPod(fmt.Sprint("p", i), "1")
		f.known(pod)
		state := f.begin(pod)
		require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
		if i == 0 {
			require.True(t, f.Bind(t.Context(), state, pod, "a").IsSuccess())
		}
		f.PostBind(t.Context(), state, pod, "a")
		assert.Len(t, told.Entries, min(i, 1))
		f.Unreserve(t.Context(), state, pod, "a")
		assert.Equal(t, "a", f.on(pod), "what is bound is not given back")
	}
	assert.Contains(t, told.LastEntry().Message, "disable DefaultBinder")
}

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
)

func TestWhileNothingCanBeDecided(t *testing.T) {
	pod := newPod("p", "1")
	t.Run("starting, whatever the policy", func(t *testing.T) {
		for _, policy := range []FailurePolicy{Fail, Ignore} {
			f := newFixture(t, policy)
			f.known(pod)
			f.backend.unready.Store(&UnavailableError{Kind: Starting})
			assert.Equal(t, fwk.UnschedulableAndUnresolvable, f.PreEnqueue(t.Context(), pod).Code())
			_, status := f.PreFilter(t.Context(), newState(), pod, nil)
			assert.Equal(t, "GlobalReserve: the ledger is not complete yet", status.Message())
			f.backend.unready.Store(nil)
			f.waker.ready(available)
			assert.Equal(t, "ns/p", f.woken())
			assert.Nil(t, f.PreEnqueue(t.Context(), pod))
		}
	})
	t.Run("away, Fail", func(t *testing.T) {
		f := newFixture(t, Fail)
		f.known(pod)
		f.backend.unready.Store(&UnavailableError{Kind: Away, Cause: errors.New("no route")})
		assert.Nil(t, f.PreEnqueue(t.Context(), pod), "its status is to say why it waits")
		_, status := f.PreFilter(t.Context(), newState(), pod, nil)
		assert.Equal(t, "GlobalReserve: the server cannot be reached", status.Message(), "a constant text, without the cause")
		f.backend.unready.Store(nil)
		f.waker.ready(available)
		assert.Equal(t, "ns/p", f.woken())
	})
	t.Run("away, Ignore", func(t *testing.T) {
		f := newFixture(t, Ignore)
		f.backend.unready.Store(&UnavailableError{Kind: Away})
		state := f.begin(pod)
		assert.True(t, f.filter(state, newPod("p", "100"), "nowhere").IsSuccess())
		assert.True(t, f.PreScore(t.Context(), state, pod, nil).IsSkip())
		assert.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
		_, err := f.handle.client.CoreV1().Pods("ns").Create(t.Context(), pod, createOptions)
		require.NoError(t, err)
		assert.True(t, f.Bind(t.Context(), state, pod, "a").IsSuccess())
		f.Unreserve(t.Context(), state, pod, "a")
		assert.Empty(t, f.backend.calls)
		assert.Equal(t, "bind", f.lastAction())
	})
	t.Run("away since Reserve", func(t *testing.T) {
		for policy, direct := range map[FailurePolicy]bool{Fail: false, Ignore: true} {
			f := newFixture(t, policy)
			_, err := f.handle.client.CoreV1().Pods("ns").Create(t.Context(), pod, createOptions)
			require.NoError(t, err)
			state := f.begin(pod)
			require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
			f.backend.fail = &UnavailableError{Kind: Away}
			assert.Equal(t, direct, f.Bind(t.Context(), state, pod, "a").IsSuccess(), policy)
		}
	})
	t.Run("no answer to Reserve", func(t *testing.T) {
		// It may have been carried out: it is given back, unless the pod goes on without.
		f := newFixture(t, Fail)
		state := f.begin(pod)
		f.backend.fail, f.backend.made = &UnavailableError{Kind: Away}, true
		require.Equal(t, "GlobalReserve: the server cannot be reached", f.Reserve(t.Context(), state, pod, "a").Message())
		f.Unreserve(t.Context(), state, pod, "a")
		assert.Equal(t, []string{"reserve p on a", "unreserve p on a"}, f.backend.calls)

		f = newFixture(t, Ignore)
		state = f.begin(pod)
		f.backend.fail, f.backend.made = &UnavailableError{Kind: Away}, true
		require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
		f.Unreserve(t.Context(), state, pod, "a")
		assert.Equal(t, []string{"reserve p on a", "unreserve p on a"}, f.backend.calls, "a later step has failed")
	})
}

// Pods that another scheduler has bound while this one stood by, or that were deleted, are not kept in mind.
func TestPodsThatDoNotWaitAnyMore(t *testing.T) {
	f := newFixture(t, Fail)
	f.backend.unready.Store(&UnavailableError{Kind: Starting})
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
	f.backend.unready.Store(nil)
	require.Len(t, f.waker.awaiting[Starting], 1)
	f.waker.ready(available)
	assert.Equal(t, "ns/waits", f.woken())
}

// Nor are those that were refused, or lost a race: what is freed would be looked at for them for ever.
func TestRefusedPodsThatAreGone(t *testing.T) {
	f := newFixture(t, Fail)
	pod := newPod("p", "1")
	info, err := f.read(pod)
	require.NoError(t, err)
	f.waker.again(info, &RefusedError{}, time.Hour)
	f.waker.refused(info, f.backend.Ledger().Revision(), false)
	require.True(t, f.waker.lost(pod.UID))
	require.NotEmpty(t, f.waker.wakeups.AskedBy(pod.UID))
	f.waker.deleted(pod)
	assert.False(t, f.waker.lost(pod.UID))
	assert.Empty(t, f.waker.wakeups.AskedBy(pod.UID))
}

// Pods that wait for the account are tried again whenever it can be decided on, or cannot for
// another reason than before.
func TestReadinessIsTold(t *testing.T) {
	f := newFixture(t, Fail)
	b := f.backend
	b.unready.Store(&UnavailableError{Kind: Starting})
	log, told := logtest.NewNullLogger()
	plugins := NewPlugins(map[Mode]NewBackend{Local: func(context.Context, *Args, fwk.Handle, Scheduler) (Backend, error) { return b, nil }}, log)
	ctx, cancel := context.WithCancel(t.Context())
	made, err := plugins.New(ctx, &runtime.Unknown{Raw: []byte(`{"mode":"local"}`)}, f.handle)
	require.NoError(t, err)
	pod := newPod("p", "1")
	f.known(pod)
	info, err := f.read(pod)
	require.NoError(t, err)
	for _, next := range []*UnavailableError{nil, {Kind: Away}, {Kind: Behind}, nil} {
		made.(*Plugin).waker.await(info, kindOf(b.Ready()))
		b.unready.Store(next)
		assert.Equal(t, "ns/p", f.woken())
	}
	cancel()
	require.NoError(t, plugins.Wait())
	changes := slices.DeleteFunc(told.AllEntries(), func(e *logrus.Entry) bool { return !strings.HasSuffix(e.Message, "be made on the ledger") })
	assert.Len(t, changes, 4, "each time once")
}

// Nobody sees a moment in which nothing can be decided and that is over before the next look. The pods that came in it are
// tried again all the same.
func TestAMomentUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Fail)
		b := f.backend
		log, _ := logtest.NewNullLogger()
		plugins := NewPlugins(map[Mode]NewBackend{Local: func(context.Context, *Args, fwk.Handle, Scheduler) (Backend, error) { return b, nil }}, log)
		ctx, cancel := context.WithCancel(t.Context())
		made, err := plugins.New(ctx, &runtime.Unknown{Raw: []byte(`{"mode":"local"}`)}, f.handle)
		require.NoError(t, err)
		<-time.After(2 * lookEvery)
		for _, kind := range []Unavailability{Starting, Behind} {
			pod := newPod(unavailable[kind], "1")
			f.known(pod)
			b.unready.Store(&UnavailableError{Kind: kind})
			_, status := made.(*Plugin).PreFilter(ctx, newState(), pod, nil)
			require.Equal(t, unavailable[kind], status.Message())
			b.unready.Store(nil)
			<-time.After(2 * lookEvery)
			synctest.Wait()
			require.NotEmpty(t, f.handle.activated)
			assert.Equal(t, "ns/"+pod.Name, <-f.handle.activated)
		}
		cancel()
		require.NoError(t, plugins.Wait())
		f.waker.stop()
	})
}

// An error of a bind that may have happened is no reason to bind past the ledger.
func TestBindThatMayHaveHappened(t *testing.T) {
	f := newFixture(t, Ignore)
	pod := newPod("p", "1")
	state := f.begin(pod)
	f.backend.fail = errors.New("it is not known")
	assert.Equal(t, fwk.Error, f.Bind(t.Context(), state, pod, "a").Code())
	assert.Empty(t, f.lastAction())
}

// A profile that binds past the plugin is told of, once.
func TestAnotherPluginBinds(t *testing.T) {
	f := newFixture(t, Fail)
	log, told := logtest.NewNullLogger()
	f.log = log
	for i := range 3 {
		pod := newPod(fmt.Sprint("p", i), "1")
		state := f.begin(pod)
		require.True(t, f.Reserve(t.Context(), state, pod, "a").IsSuccess())
		if i == 0 {
			require.True(t, f.Bind(t.Context(), state, pod, "a").IsSuccess())
		}
		f.PostBind(t.Context(), state, pod, "a")
		assert.Len(t, told.Entries, min(i, 1))
		f.Unreserve(t.Context(), state, pod, "a")
	}
	assert.Contains(t, told.LastEntry().Message, "disable DefaultBinder")
	assert.NotContains(t, strings.Join(f.backend.calls, "; "), "unreserve", "what is bound is not given back")
}

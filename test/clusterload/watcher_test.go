package clusterload

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/test/leaks"
)

const (
	eventually = time.Minute
	tick       = 5 * time.Millisecond
)

// api is a fake API server whose pod list and pod events the test makes.
type api struct {
	*fake.Clientset
	streams chan *watch.FakeWatcher // one for each watch of the pods that was opened

	mu      sync.Mutex // guards what follows
	pods    corev1.PodList
	watched []string // the versions the watches began at
}

func newAPI(objects ...runtime.Object) *api {
	a := &api{Clientset: fake.NewClientset(objects...), streams: make(chan *watch.FakeWatcher, 10)}
	a.pods.ResourceVersion = "100"
	a.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return true, a.pods.DeepCopy(), nil
	})
	a.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watched = append(a.watched, action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		stream := watch.NewFake()
		a.streams <- stream
		return true, stream, nil
	})
	return a
}

func (a *api) setPods(version string, pods ...*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods.ResourceVersion, a.pods.Items = version, nil
	for _, pod := range pods {
		a.pods.Items = append(a.pods.Items, *pod)
	}
}

func at(version string, pod *corev1.Pod) *corev1.Pod {
	pod.ResourceVersion = version
	return pod
}

func startWatcher(t *testing.T, a *api) *Watcher {
	t.Helper()
	w := NewWatcher(a)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		w.Stop()
		leaks.None(t)
	})
	return w
}

func TestWatcherJudgesEveryEvent(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	a.setPods("100", newPod("a", "n", "cpu", "3"))
	w := startWatcher(t, a)
	assert.Equal(t, 1, w.Snapshot().Bound)

	stream := <-a.streams
	stream.Add(at("101", newPod("b", "", "cpu", "2")))
	stream.Modify(at("102", newPod("b", "n", "cpu", "2")))
	stream.Delete(at("103", newPod("b", "n", "cpu", "2")))
	require.Eventually(t, func() bool { return w.Snapshot().Pods == 1 }, eventually, tick)

	violations := w.Violations()
	require.Len(t, violations, 1, "seen although it is over again")
	assert.Equal(t, "n: 5000 of 4000 cpu bound (resource version 102)", violations[0].String())
	assert.Equal(t, Peak{OvercommittedNodes: 1, CPUNode: "n", CPUUsed: 5000, CPUAllocatable: 4000}, w.Peak())
	assert.Zero(t, w.Gaps())

	w.Reset()
	assert.Empty(t, w.Violations())
	assert.Equal(t, Peak{CPUNode: "n", CPUUsed: 3000, CPUAllocatable: 4000}, w.Peak())
}

func TestWatcherGoesOnWhereAWatchEnded(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	w := startWatcher(t, a)
	stream := <-a.streams
	stream.Add(at("101", newPod("a", "n", "cpu", "1")))
	stream.Stop()
	stream = <-a.streams
	stream.Add(at("102", newPod("b", "n", "cpu", "1")))
	require.Eventually(t, func() bool { return w.Snapshot().Bound == 2 }, eventually, tick)
	assert.Zero(t, w.Gaps())
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Equal(t, []string{"100", "101"}, a.watched)
}

func TestWatcherTellsOfLostEvents(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	a.setPods("100", newPod("a", "n", "cpu", "1"), newPod("b", "n", "cpu", "1"))
	w := startWatcher(t, a)
	stream := <-a.streams
	a.setPods("200", newPod("b", "n", "cpu", "1"), newPod("c", "n", "cpu", "4"))
	stream.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	<-a.streams
	require.Eventually(t, func() bool { return w.Gaps() == 1 }, eventually, tick)
	assert.Equal(t, 2, w.Snapshot().Pods, "what was deleted meanwhile is gone")
	assert.Len(t, w.Violations(), 1)
}

func TestCatchUp(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	w := startWatcher(t, a)
	stream := <-a.streams
	a.setPods("105", at("102", newPod("a", "n", "cpu", "1")))

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, w.CatchUp(short), "wait for the watch of the pods to catch up")

	caughtUp := make(chan error, 1)
	go func() { caughtUp <- w.CatchUp(t.Context()) }()
	stream.Add(at("102", newPod("a", "n", "cpu", "1")))
	require.NoError(t, <-caughtUp, "the pods are the same, though the list is of a later version")

	a.setPods("103")
	go func() { caughtUp <- w.CatchUp(t.Context()) }()
	stream.Modify(at("106", newPod("a", "n", "cpu", "1")))
	require.NoError(t, <-caughtUp, "the watch is past the list")
}

func TestAwaitSettled(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	waiting := newPod("waiting", "", "cpu", "3")
	a.setPods("100", waiting)
	w := startWatcher(t, a)
	stream := <-a.streams

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	snapshot, err := w.AwaitSettled(short, 0)
	require.ErrorIs(t, err, ErrStuck)
	require.ErrorContains(t, err, "default/waiting (of s) on n")
	assert.Len(t, snapshot.FittingPods, 1)

	other := at("101", newPod("other", "n", "cpu", "2"))
	a.setPods("101", waiting, other)
	stream.Add(other)
	snapshot, err = w.AwaitSettled(t.Context(), time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, 1, snapshot.Bound)
	assert.Equal(t, 1, snapshot.Pending)

	busy, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = w.AwaitSettled(busy, time.Hour)
	assert.ErrorContains(t, err, "pods still come, go or are bound")
}

func TestSnapshotCountsGangs(t *testing.T) {
	a := newAPI(newNode("n", "cpu", "4"))
	a.setPods("100",
		with(newPod("whole-0", "n", "cpu", "1"), inGang("whole", 2)),
		with(newPod("whole-1", "n", "cpu", "1"), inGang("whole", 2)),
		with(newPod("part-0", "n", "cpu", "1"), inGang("part", 2)), with(newPod("part-1", "", "cpu", "1"), inGang("part", 2)),
		with(newPod("waits-0", "", "cpu", "1"), inGang("waits", 2)),
		with(newPod("waits-1", "", "cpu", "1"), inGang("waits", 2)),
		with(newPod("late-0", "n", "cpu", "1"), inGang("late", 2)),
		with(newPod("late-1", "n", "cpu", "1"), inGang("late", 2)),
		newPod("single", ""),
	)
	w := startWatcher(t, a)
	snapshot := w.Snapshot()
	assert.Equal(t, []Gang{
		{Namespace: "default", Name: "late", Size: 2, Bound: 2, Refused: 1},
		{Namespace: "default", Name: "part", Size: 2, Bound: 1},
		{Namespace: "default", Name: "waits", Size: 2},
		{Namespace: "default", Name: "whole", Size: 2, Bound: 2},
	}, snapshot.Gangs)
	whole, half := snapshot.CountGangs()
	assert.Equal(t, 1, whole)
	assert.Equal(t, 2, half, "a gang of which a kubelet would fail a pod is half too")
	assert.Equal(t, 4, snapshot.Pending)
}

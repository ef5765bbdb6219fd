package cluster

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/test/background"
)

// reach has what a list shows be of a version, and other objects, if there are any, without telling the watch.
func (s *apiServer) reach(version int, objects ...runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	if len(objects) > 0 {
		s.objects = objects
	}
}

func bookmarkOf(kind runtime.Object, version string) runtime.Object {
	kind = kind.DeepCopyObject()
	kind.(metav1.Object).SetResourceVersion(version)
	return kind
}

func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(objects(aPod("a", 1)), objects(aNode("n1", 1, "4")))
		defer background.Run(t, f.Run)()
		pass(5 * time.Second)
		require.NoError(t, f.CatchUp(t.Context()), "nothing has happened since the list")
		assert.Equal(t, 1, f.podServer.watched(), "so that no watch had to end")

		f.podServer.reach(30)
		f.nodeServer.reach(40)
		f.podWatch.objects.Store(quickToList + 1)
		f.nodeWatch.objects.Store(quickToList + 1)
		done := make(chan error, 1)
		go func() { done <- f.CatchUp(t.Context()) }()
		pass(time.Second)
		require.Equal(t, 2, f.podServer.watched())
		require.Equal(t, 2, f.nodeServer.watched())
		f.podServer.send(watch.Modified, aPod("a", 29, on("n1")))
		f.podServer.send(watch.Bookmark, bookmarkOf(&v1.Pod{}, "30"))
		f.nodeServer.send(watch.Bookmark, bookmarkOf(&v1.Node{}, "39"))
		synctest.Wait()
		require.Empty(t, done, "nodes lack a change")
		f.nodeServer.send(watch.Modified, aNode("n2", 40, "4"))
		require.NoError(t, <-done)
		assert.Equal(t, "Bound n1", f.shareOf("a"))
	})
}

// Few objects are listed anew. A list that takes longer than one waits for the next look would never end, were it begun
// again each time.
func TestCatchUpWithSlowLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(objects(aPod("a", 1)), objects(aNode("n1", 1, "4")))
		f.connect(true)
		defer background.Run(t, f.Run)()
		pass(5 * time.Second)
		f.podServer.slowDown(5 * hurriedFor)
		f.podServer.reach(30, aPod("a", 29, on("n1")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, f.CatchUp(ctx))
		ofOne := func(o metav1.ListOptions) bool { return o.Limit == 1 }
		full := slices.DeleteFunc(slices.Clone(f.podServer.lists), ofOne)
		assert.Len(t, full, 1)
		assert.Equal(t, "Bound n1", f.shareOf("a"))
		pass(time.Second)
		f.podServer.send(watch.Modified, aPod("a", 31, on("n1"), inPhase(v1.PodSucceeded)))
		synctest.Wait()
		assert.Empty(t, f.shareOf("a"), "the watch goes on")
	})
}

func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(objects(aPod("a", 1)), objects(aNode("n1", 1, "4")))
		defer background.Run(t, f.Run)()
		pass(informer.StaleAfter)
		assert.Empty(t, informer.Stale(f.News().Ages))
		assert.Greater(t, f.podServer.watched(), 1, "it was tried to hear something")
		pass(time.Second)
		assert.Contains(t, informer.Stale(f.News().Ages), "nothing was heard of nodes for 1m31s")
		assert.Equal(t, 91*time.Second, f.News().Ages["pods"])
		f.nodeServer.send(watch.Modified, aNode("n1", 2, "4"))
		synctest.Wait()
		assert.Contains(t, informer.Stale(f.News().Ages), "nothing was heard of pods for 1m31s")
		f.podServer.send(watch.Bookmark, bookmarkOf(&v1.Pod{}, "30"))
		synctest.Wait()
		assert.Empty(t, informer.Stale(f.News().Ages))
	})
}

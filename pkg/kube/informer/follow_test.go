package informer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// cluster is a fake API server in a synctest bubble. The kinds that come and go are its ConfigMaps and Secrets.
type cluster struct {
	*fake.Clientset
	installed atomic.Bool
	failure   atomic.Pointer[error] // of discovery
	asked     atomic.Int32
	kinds     *Definitions

	mu   sync.Mutex
	told []string
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(objects...)}
	c.Resources = []*metav1.APIResourceList{{
		GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps"}, {Name: "secrets"}, {Name: "pods"}},
	}}
	c.installed.Store(true)
	c.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.asked.Add(1)
		if failure := c.failure.Load(); failure != nil {
			return true, nil, *failure
		}
		return !c.installed.Load(), nil, errNotInstalled
	})
	log, _ := logtest.NewNullLogger()
	c.kinds = NewDefinitions(c.Discovery(), v1.SchemeGroupVersion, log)
	return c
}

var errNotInstalled = apierrors.NewNotFound(schema.GroupResource{}, "kind")

func (c *cluster) tell(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what)
}

// news returns what was told since it was called last.
func (c *cluster) news() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.told
	c.told = nil
	return news
}

// watch is a Watch of ConfigMaps and Secrets.
func (c *cluster) watch() *Watch {
	log, _ := logtest.NewNullLogger()
	set := func(name string, initial bool) {
		c.tell(map[bool]string{true: "listed ", false: "set "}[initial] + name)
	}
	return NewWatch(c.kinds.Kind("configmaps", "secrets"), log,
		NewSource(c, "configmaps", c.CoreV1().ConfigMaps(""), &v1.ConfigMap{},
			func(m *v1.ConfigMap, initial bool) { set(m.Name, initial) }, func(m *v1.ConfigMap) { c.tell("gone " + m.Name) }),
		NewSource(c, "secrets", c.CoreV1().Secrets(""), &v1.Secret{},
			func(s *v1.Secret, initial bool) { set(s.Name, initial) }, func(s *v1.Secret) { c.tell("gone " + s.Name) }))
}

func configMap(name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
}

// inBubble runs parts while a test does.
func inBubble(t *testing.T, test func(t *testing.T, run func(part func(ctx context.Context) error))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		test(t, func(part func(ctx context.Context) error) {
			running.Go(func() { assert.NoError(t, part(ctx)) })
			synctest.Wait()
		})
		cancel()
		stopped := time.Now()
		running.Wait()
		assert.Zero(t, time.Since(stopped), "parts end at once")
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestKindsComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		c := newCluster()
		both, unknown := c.kinds.Kind("secrets", "configmaps"), c.kinds.Kind("secrets", "widgets")
		assert.False(t, both.Installed(), "nobody has asked")
		run(c.kinds.Run)
		assert.True(t, both.Installed())
		assert.False(t, unknown.Installed(), "one of the two is missing")

		failure := error(apierrors.NewServiceUnavailable("away"))
		c.failure.Store(&failure)
		c.installed.Store(false)
		pass(time.Minute)
		assert.True(t, both.Installed(), "an API server that does not answer has uninstalled nothing")
		c.failure.Store(nil)
		pass(askSoon)
		assert.False(t, both.Installed())
		c.installed.Store(true)
		pass(askAgain)
		assert.True(t, both.Installed())

		c.installed.Store(false)
		asked := c.asked.Load()
		for range 100 {
			both.Doubt()
		}
		pass(askSoon)
		assert.False(t, both.Installed(), "doubts are looked into soon")
		assert.LessOrEqual(t, c.asked.Load(), asked+1, "however many there are")
	})
}

func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		c := newCluster(configMap("a"), configMap("b"), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}})
		run(c.kinds.Run)
		w := c.watch()
		assert.False(t, w.Listed())
		run(func(ctx context.Context) error {
			return w.Run(ctx,
				func(ctx context.Context) {
					c.tell("present")
					<-ctx.Done()
					c.tell("present no more")
				},
				func(context.Context) { c.tell("absent") })
		})
		listed := c.news()
		slices.Sort(listed[:2])
		assert.Equal(t, []string{"listed a", "listed b", "listed s", "present"}, listed)
		assert.True(t, w.Listed())
		assert.Empty(t, w.Get("ns/a").(*v1.ConfigMap).ManagedFields)
		assert.Nil(t, w.Get("ns/s"), "it is of another source")

		maps := c.CoreV1().ConfigMaps("ns")
		_, err := maps.Create(t.Context(), configMap("c"), metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"set c"}, c.news())
		require.NoError(t, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		assert.Equal(t, []string{"gone a"}, c.news())

		c.installed.Store(false)
		pass(askAgain)
		gone := c.news()
		slices.Sort(gone[1:4])
		assert.Equal(t, []string{"present no more", "gone b", "gone c", "gone s", "absent"}, gone)
		assert.False(t, w.Listed())
		assert.Nil(t, w.Get("ns/b"))

		c.installed.Store(true)
		pass(askAgain)
		again := c.news()
		slices.Sort(again[:2])
		assert.Equal(t, []string{"listed b", "listed c", "listed s", "present"}, again)
	})
}

// TestKindIsBackBeforeItsObjectsWereToldGone has a definition removed and installed again while the objects of
// the first one are still told of.
func TestKindIsBackBeforeItsObjectsWereToldGone(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		c := newCluster(configMap("a"))
		run(c.kinds.Run)
		log, _ := logtest.NewNullLogger()
		w := NewWatch(c.kinds.Kind("configmaps"), log, NewSource(c, "configmaps", c.CoreV1().ConfigMaps(""), &v1.ConfigMap{},
			func(m *v1.ConfigMap, _ bool) { c.tell("set " + m.Name) },
			func(m *v1.ConfigMap) {
				<-time.After(2 * askAgain)
				c.tell("gone " + m.Name)
			}))
		run(func(ctx context.Context) error {
			return w.Run(ctx, func(context.Context) { c.tell("present") }, func(context.Context) { c.tell("absent") })
		})
		assert.Equal(t, []string{"set a", "present"}, c.news())
		c.installed.Store(false)
		pass(askAgain)
		c.installed.Store(true)
		pass(3 * askAgain)
		assert.Equal(t, []string{"gone a", "absent", "set a", "present"}, c.news())
		assert.True(t, w.Listed())
	})
}

// TestA404IsLookedInto has the API server answer that there is no such kind while it is thought to be installed.
func TestA404IsLookedInto(t *testing.T) {
	// client-go's own error handlers sleep by the time at which the process started, which is another
	// clock than that of the test.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		c := newCluster(configMap("a"))
		run(c.kinds.Run)
		w := c.watch()
		c.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !c.installed.Load(), nil, errNotInstalled
		})
		c.installed.Store(false)
		run(func(ctx context.Context) error {
			return w.Run(ctx, func(context.Context) { c.tell("present") }, func(context.Context) { c.tell("absent") })
		})
		assert.Empty(t, c.news())
		pass(askSoon)
		assert.Equal(t, []string{"absent"}, c.news())
		c.installed.Store(true)
		pass(askAgain)
		assert.Equal(t, []string{"listed a", "present"}, c.news())
	})
}

func TestJournal(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(func(context.Context) error)) {
		l := ledger.New(ledger.Options{FirstRevision: 7, JournalSize: 4})
		l.ObserveNode(ledger.NodeObservation{Name: "before"})
		var noted []string
		lost := 0
		j := NewJournal(l.Reader, func(e *ledger.Event) { noted = append(noted, string(e.Type)+" "+e.Node) },
			func() { lost++ })
		var mu sync.Mutex
		l.ObserveNode(ledger.NodeObservation{Name: "n"})
		run(func(ctx context.Context) error { return j.Run(ctx, &mu) })
		synctest.Wait()
		assert.Equal(t, []string{string(ledger.NodeUpdated) + " n"}, noted, "it happened before it ran")

		mu.Lock()
		l.RemoveNode("n")
		j.CatchUp()
		assert.Len(t, noted, 2)
		for range 10 {
			l.ObserveNode(ledger.NodeObservation{Name: "x"})
			l.RemoveNode("x")
		}
		mu.Unlock()
		synctest.Wait()
		assert.Len(t, noted, 2, "each event is told of once")
		assert.Equal(t, 1, lost)
		l.ObserveNode(ledger.NodeObservation{Name: "n"})
		synctest.Wait()
		assert.Len(t, noted, 3)
		mu.Lock()
		defer mu.Unlock()
		j.Rewind(l.Revision() - 2)
		j.Rewind(l.Revision()) // it goes back only
		j.CatchUp()
		assert.Equal(t, []string{string(ledger.NodeRemoved) + " x", string(ledger.NodeUpdated) + " n"}, noted[3:])
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(100)
		e := NewEvents(recorder, 1, 3)
		pod := PodReference("ns", "p", "uid")
		for range 10 {
			e.Warn(pod, "Reason", "Do", "the same")
		}
		assert.Len(t, recorder.Events, 1, "nobody is told the same again and again")
		e.Warn(pod, "Reason", "Do", "another thing")
		assert.True(t, e.Tell(pod, v1.EventTypeNormal, "Reason", "Do", "it"))
		assert.False(t, e.Tell(pod, v1.EventTypeNormal, "Reason", "Do", "it"), "beyond the burst")
		assert.Len(t, recorder.Events, 3)
		<-time.After(repeatAfter)
		e.Warn(pod, "Reason", "Do", "another thing")
		assert.Len(t, recorder.Events, 4)
	})
}

// What several have to tell an object at once it is told once.
func TestWarnedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds, several = 100, 8
		recorder := events.NewFakeRecorder(rounds * several)
		e := NewEvents(recorder, 1, rounds*several)
		for i := range rounds {
			var warned sync.WaitGroup
			for range several {
				warned.Go(func() { e.Warn(PodReference("ns", "p", "uid"), "Reason", "Do", strconv.Itoa(i)) })
			}
			warned.Wait()
			require.Len(t, recorder.Events, i+1)
		}
	})
}

func TestClip(t *testing.T) {
	assert.Equal(t, "short", Clip("short", 5))
	assert.Equal(t, "lo...", Clip("longer", 5))
	assert.Equal(t, "é...", Clip("ééééé", 6), "no half letters")
}

func TestRemedy(t *testing.T) {
	quota := schema.GroupResource{Resource: "resourcequotas"}
	for want, err := range map[string]error{
		"the API server denies this server resourcequotas " +
			`(resourcequotas is forbidden: User "robot" cannot list): apply manifests/base/rbac.yaml`: apierrors.NewForbidden(
			quota, "", errors.New(`User "robot" cannot list`),
		),
		`the API server knows no resourcequotas (resourcequotas "" not found): apply manifests/crd`: apierrors.NewNotFound(quota, ""),
		`resourcequotas: no route`: errors.New("no route"),
	} {
		assert.Equal(t, want, remedy("resourcequotas", err))
	}
}

// A definition that is deleted under a running server is named, with what brings it back.
func TestDeletedDefinitionIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(part func(context.Context) error)) {
		c := newCluster()
		w := c.watch()
		log, told := logtest.NewNullLogger()
		w.log = log
		run(c.kinds.Run)
		run(func(ctx context.Context) error { return w.Run(ctx, nil, nil) })
		require.Empty(t, told.AllEntries())
		c.installed.Store(false)
		pass(askAgain)
		require.NotNil(t, told.LastEntry())
		assert.Equal(t, "the cluster has no definition of configmaps and secrets: running without; "+
			"to have them: kubectl apply -k manifests/crd", told.LastEntry().Message)
	})
}

// An object that was deleted and made again while nobody watched is another one: the first is gone.
func TestReplacedUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(part func(context.Context) error)) {
		first := configMap("a")
		first.UID = "first"
		c := newCluster(first)
		w := c.watch()
		run(c.kinds.Run)
		run(func(ctx context.Context) error { return w.Run(ctx, nil, nil) })
		require.Equal(t, []string{"listed a"}, c.news())
		second := configMap("a")
		second.UID = "second"
		_, err := c.CoreV1().ConfigMaps("ns").Update(t.Context(), second, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{"gone a", "set a"}, c.news())
	})
}

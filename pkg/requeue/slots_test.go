package requeue

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

var testSlot = ledger.SlotRef{Namespace: "default", Name: "r", Slot: "s"}

// keep keeps some milli-CPU of a node for the pods of match.
func (w *world) keep(node string, cpu int64) {
	require.True(w.t, w.ledger.ObserveSlot(ledger.Slot{
		Ref: testSlot, Node: node, Policy: ledger.Once, Request: placementtest.Request(cpu),
	}))
}

func TestSlotsWakeThePodsThatMayUseThem(t *testing.T) {
	bubble.Each(t, map[string]bool{"steered": true, "patched": false}, func(t *testing.T, steers bool) {
		w := newWorld(t, "a", "b")
		w.match("waiting", "too-large")
		if !steers {
			w.api.nomination = func(string) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "waiting", errors.New("no right to do so"))
			}
		}
		w.refuse(w.pod("waiting", "3", 0))
		w.refuse(w.pod("too-large", "5", 0))
		w.refuse(w.pod("stranger", "1", 0))
		advance(time.Minute)
		w.keep("a", 3000)
		synctest.Wait()
		assert.Equal(t, []string{"waiting -> a"}, w.api.written())
		woken := 1
		if steers {
			assert.Empty(t, w.api.patched())
		} else {
			assert.Equal(t, []string{"waiting"}, w.api.patched())
			woken = 2 // a nomination that is not written counts, too
		}
		assert.Equal(t, woken, w.count())
		w.refuse(w.pod("waiting", "3", 0))
		advance(time.Minute)
		assert.Equal(t, woken, w.count(), "the slot is no news any more")
	})
}

// A pod is refused the only node that its scheduler offers, and capacity is kept for it on another one. The scheduler
// may know of no room there yet, and of no event when there is: the pod is tried again, less and less often.
func TestSlotOnANodeThatIsNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.observeBound(w.pod("full", "4", 0), "a")
		member, other := w.pod("member", "4", 0), w.pod("other", "4", 0)
		w.reserve(member, "b", time.Hour)
		w.refuse(member, "a")
		w.refuse(other, "a")
		assert.Empty(t, w.api.names(), "the attempt is not over yet")
		advance(announcedDelay)
		assert.Equal(t, []string{"member"}, w.api.names())
		for range 3 {
			w.refuse(member, "a")
			advance(announcedDelay)
		}
		advance(10 * time.Second)
		assert.Len(t, w.api.names(), 3, "after pauses of one second, two and four")
		w.unreserve(member, "b")
		w.refuse(member, "a")
		advance(time.Minute)
		assert.Equal(t, []string{"member", "member", "member", "other"}, w.api.names(),
			"capacity that was freed is the other's, too, and nothing is kept for the member")
	})
}

func TestWakeWhateverIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p := w.pod("promised", "8", 0)
		w.Wake(p)
		synctest.Wait()
		assert.Equal(t, []string{"promised"}, w.api.names())
		w.refuse(p)
		advance(time.Minute)
		assert.Len(t, w.api.names(), 1, "a promise is kept once")
		w.Wake(p)
		synctest.Wait()
		assert.Len(t, w.api.values, 2, "the same annotation again would wake nobody")
	})
}

// random is a value of the annotation that is never the one before.
var random = regexp.MustCompile(`[A-Z2-7]{26}`)

func TestPatches(t *testing.T) {
	pod := ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}
	tests := map[string]struct {
		write            func(APIPatcher) error
		path, kind, body string
	}{
		"annotate": {
			func(p APIPatcher) error { return p.Annotate(t.Context(), pod, map[string]string{"k": "v"}) },
			"/api/v1/namespaces/ns/pods/p", "application/merge-patch+json",
			`{"metadata":{"uid":"u","annotations":{"k":"v"}}}`,
		},
		"nominate": {
			func(p APIPatcher) error { return p.Nominate(t.Context(), pod, 0, "n") },
			"/api/v1/namespaces/ns/pods/p/status", "application/merge-patch+json",
			`{"metadata":{"uid":"u","annotations":{"globalreserve.io/retry":"RANDOM"}},"status":{"nominatedNodeName":"n"}}`,
		},
		"nominate a version": {
			func(p APIPatcher) error { return p.Nominate(t.Context(), pod, 7, "n") },
			"/api/v1/namespaces/ns/pods/p/status", "application/merge-patch+json",
			`{"metadata":{"annotations":{"globalreserve.io/retry":"RANDOM"},"resourceVersion":"7","uid":"u"},` +
				`"status":{"nominatedNodeName":"n"}}`,
		},
		"clear": {
			func(p APIPatcher) error { return p.Clear(t.Context(), pod, "n") },
			"/api/v1/namespaces/ns/pods/p/status", "application/json-patch+json",
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/status/nominatedNodeName","value":"n"},{"op":"remove","path":"/status/nominatedNodeName"}]`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var path, kind, body, manager string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				content, _ := io.ReadAll(r.Body)
				path, kind, body = r.URL.Path, r.Header.Get("Content-Type"), string(content)
				manager = r.URL.Query().Get("fieldManager")
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			patcher := APIPatcher{Pods: client.CoreV1(), Term: election.NewOwnTerm(3)}
			require.NoError(t, tt.write(patcher))
			assert.Equal(t, "globalreserve-term-3", manager)
			assert.Equal(t, tt.path, path)
			assert.Equal(t, tt.kind, kind)
			assert.JSONEq(t, tt.body, random.ReplaceAllString(body, "RANDOM"))
			server.Close()
			assert.ErrorContains(t, patcher.Annotate(context.Background(), pod, nil), "ns/p")
		})
	}
}

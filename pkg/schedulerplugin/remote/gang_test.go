package remote

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// gang are two pods on a node each.
func gang() []schedulerplugin.Member {
	var members []schedulerplugin.Member
	for _, name := range []string{"p", "q"} {
		pod, placement := pod()
		pod.Name, placement.Pod.Name = name, name
		placement.Node = "n-" + name
		members = append(members, schedulerplugin.Member{Pod: pod, Placement: *placement})
	}
	return members
}

func TestReserveAll(t *testing.T) {
	var asked reserver.Request
	b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{FailedPods: []string{}, Revision: 7}, &asked))
	made, err := b.ReserveAll(t.Context(), gang())
	require.NoError(t, err)
	assert.Equal(t, []bool{true, true}, made)
	assert.Equal(t, []string{"n-p", "n-q"}, asked.Nodes)
	require.Len(t, asked.Pods, 2)
	assert.Empty(t, asked.Pods[1].Spec.NodeName, "the pod is not bound")
	assert.Empty(t, asked.Mode, "all or nothing, as nothing else is said")
	assert.False(t, *asked.Durable)
	_, behind := b.mirror.Lag()
	assert.EqualValues(t, 2, behind, "the answer's revision is awaited")
}

func TestReserveAllIsRefused(t *testing.T) {
	b := newBackend(t, answering(t, http.StatusOK, &reserver.Answer{
		Error: "nothing was reserved", FailedPods: []string{"ns/q"}, Revision: 9,
		Rejections: []reserver.Rejection{{Reason: ledger.InsufficientResource.String(), Message: "too little"}},
	}, nil))
	_, err := b.ReserveAll(t.Context(), gang())
	assert.Equal(t, &schedulerplugin.RefusedError{Reason: ledger.InsufficientResource, Message: "too little", Revision: 9}, err)
}

// A gang may have been reserved by a server that has not answered. It is given back.
func TestReserveAllOfUnknownOutcome(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path)
		if r.URL.Path == "/reserve" {
			panic(http.ErrAbortHandler)
		}
		answering(t, http.StatusOK, &reserver.Answer{FailedPods: []string{}, Revision: 9}, nil)(w, r)
	})
	_, err := b.ReserveAll(t.Context(), gang())
	assert.Equal(t, schedulerplugin.Away, kindOf(err))
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"/reserve", "/unreserve"}, slices.Compact(paths))
	b.catchUp(t, 9)
	assert.Equal(t, schedulerplugin.Away, kindOf(b.Ready()), "it is not relied on at once")
}

package rest

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func withID(pod *v1.Pod, node, id string) body {
	request := gangOf(node, pod)
	request.RequestID = id
	return request
}

func TestRepeatGetsTheFirstAnswer(t *testing.T) {
	f := newFixture(t, Limits{})
	a := aPod("a", "3", "1Gi")
	granted := f.reserve(withID(a, "node-1", "job-1"))
	refused := f.reserve(withID(aPod("b", "3", "1Gi"), "node-1", "job-2"))
	require.Empty(t, granted.Error)
	require.NotEmpty(t, refused.Error)
	f.AddNode("node-4", "4", "8Gi") // time goes on
	revision := f.ledger.Revision()

	assert.Equal(t, granted, f.reserve(withID(a, "node-1", "job-1")))
	for range 2 {
		again := f.reserve(withID(aPod("b", "3", "1Gi"), "node-1", "job-2"))
		repeats := regexp.MustCompile(
			`^(.*); this repeats the answer to RequestID "job-2", which is remembered for (.*) more: to have it decided anew, send a new RequestID$`,
		)
		parts := repeats.FindStringSubmatch(again.Error)
		require.Len(t, parts, 3, again.Error)
		remembered, err := time.ParseDuration(parts[2])
		require.NoError(t, err)
		assert.Greater(t, remembered, 5*time.Minute)
		assert.LessOrEqual(t, remembered, 10*time.Minute)
		again.Error = parts[1]
		assert.Equal(t, refused, again)
	}
	assert.Equal(t, revision, f.ledger.Revision())
	// The pod as its scheduler sees it later.
	later := a.DeepCopy()
	later.ResourceVersion = "77"
	later.Status.Phase = v1.PodPending
	later.Annotations = map[string]string{"retry": "1"}
	assert.Equal(t, granted, f.reserve(withID(later, "node-1", "job-1")))
}

// A server that stops, or has just started, does not know for a while whether there are Reservations. A repeat that
// does not say whether it is durable is the same request nevertheless.
func TestRepeatWhileTheKindIsUnknown(t *testing.T) {
	durable(t, func(t *testing.T, d *fixture) {
		request := withID(aPod("a", "1", "1Gi"), "node-1", "job-1")
		first := d.reserve(request)
		require.True(t, first.Durable)
		d.NoKind = true
		assert.Equal(t, first, d.reserve(request))
	})
}

func TestRepeatOfAnotherRequest(t *testing.T) {
	tests := map[string]func(*body){
		"another pod":    func(b *body) { b.Pods[0].Name = "z" },
		"another UID":    func(b *body) { b.Pods[0].UID = "z" },
		"another node":   func(b *body) { b.Nodes[0] = "node-2" },
		"another amount": func(b *body) { b.Pods[0].Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
		"another port": func(b *body) {
			b.Pods[0].Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		},
		"another mode": func(b *body) { b.Mode = "Partial" },
		"another TTL":  func(b *body) { b.TTLSeconds = 7 },
		"a dry run":    func(b *body) { b.DryRun = true },
		"another gang": func(b *body) { b.Pods, b.Nodes = append(b.Pods, aPod("z", "1", "1Gi")), append(b.Nodes, "node-2") },
	}
	f := newFixture(t, Limits{})
	require.Empty(t, f.reserve(withID(aPod("a", "1", "1Gi"), "node-1", "job-1")).Error)
	before := f.ledger.Revision()
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			request := withID(aPod("a", "1", "1Gi"), "node-1", "job-1")
			change(&request)
			status, answer := f.ask("/reserve", request)
			assert.Equal(t, http.StatusConflict, status)
			assert.Contains(t, answer.Error, `RequestID "job-1" was used before for another request`)
			assert.Equal(t, before, f.ledger.Revision())
		})
	}
}

func TestScopeOfARequestID(t *testing.T) {
	f := newFixture(t, Limits{})
	require.Empty(t, f.reserve(withID(aPod("a", "1", "1Gi"), "node-1", "1")).Error)
	theirs := withID(aPod("b", "1", "1Gi"), "node-1", "1")
	theirs.SchedulerName = "theirs"
	assert.Empty(t, f.reserve(theirs).Error, "another scheduler may use the same ID")
	back := f.unreserve(withID(aPod("a", "1", "1Gi"), "node-1", "1"))
	assert.Empty(t, back.Error, "so may another verb")
	assert.False(t, back.Durable)
	assert.Equal(t, ledger.NoAllocation.String(), f.state(aPod("a", "1", "1Gi")))
}

// The server never says that capacity is held which is not.
func TestRepeatAfterTheCapacityWasGivenUp(t *testing.T) {
	tests := map[string]func(f *fixture, pod *v1.Pod){
		"expired": func(f *fixture, _ *v1.Pod) {
			f.ledger.Expire(time.Now().Add(testTTL))
		},
		"given back":      func(f *fixture, pod *v1.Pod) { f.unreserve(gangOf("node-1", pod)) },
		"bound elsewhere": func(f *fixture, pod *v1.Pod) { f.bind(pod, "node-2") },
		"gone": func(f *fixture, pod *v1.Pod) {
			f.ledger.RemovePod(ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, 0)
		},
	}
	for name, giveUp := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			a, b := aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi")
			request := body{
				SchedulerName: testScheduler, RequestID: "job", Pods: []*v1.Pod{a, b},
				Nodes: []string{"node-1", "node-1"}, TTLSeconds: 60,
			}
			f.reserve(request)
			f.bind(b, "node-1") // stays
			giveUp(f, a)
			before := f.ledger.Revision()
			answer := f.reserve(request)
			assert.Equal(t, []string{"a"}, answer.FailedPods)
			assert.Contains(t, answer.Error, "given up since")
			assert.Equal(t, before, f.ledger.Revision())
		})
	}
}

func TestConcurrentRepeats(t *testing.T) {
	f := newFixture(t, Limits{})
	const repeats = 50
	answers := make([]reserver.Answer, repeats)
	before := f.ledger.Revision()
	var wg sync.WaitGroup
	for i := range repeats {
		wg.Go(func() { answers[i] = f.reserve(withID(aPod("a", "3", "1Gi"), "node-1", "job")) })
	}
	wg.Wait()
	for i := range answers {
		assert.Equal(t, answers[0], answers[i])
	}
	assert.Empty(t, answers[0].Error)
	assert.Equal(t, before+1, f.ledger.Revision())
	assert.Equal(t, 1, f.Counted(t, "decisions_total", "reserve", testScheduler, "granted"), "decided once")
}

// A repeat that comes while the first waits for its revision joins it; when that
// wait is in vain the answer is not kept.
func TestRepeatWhileWaiting(t *testing.T) {
	inMemory(t, func(t *testing.T, d *fixture) {
		request := withID(aPod("a", "1", "1Gi"), "node-1", "job")
		request.MinRevision = d.ledger.Revision() + 1
		first, second := make(chan reserver.Answer, 1), make(chan reserver.Answer, 1)
		go func() { first <- d.reserve(request) }()
		synctest.Wait()
		repeat := withID(aPod("a", "1", "1Gi"), "node-1", "job") // of any revision
		go func() { second <- d.reserve(repeat) }()
		assert.Contains(t, (<-first).Error, "MinRevision")
		assert.Empty(t, (<-second).Error, "decided anew")
	})
}

func TestKeptAnswersAreBounded(t *testing.T) {
	inMemory(t, func(t *testing.T, d *fixture) {
		d.api.replays = newReplays(time.Minute, 10)
		kept := func() int {
			d.api.replays.mu.Lock()
			defer d.api.replays.mu.Unlock()
			assert.Len(t, d.api.replays.byKey, d.api.replays.oldest.Len())
			return d.api.replays.oldest.Len()
		}
		for i := range 20 {
			request := withID(aPod("a", "1", "1Gi"), "node-1", fmt.Sprint(i))
			request.DryRun = true // an answer of cost 1
			d.reserve(request)
		}
		assert.Equal(t, 10, kept(), "by cost")
		long := withID(aPod("a", "1", "1Gi"), "node-1", "long")
		long.TTLSeconds = 600
		d.reserve(long)
		elapse(2 * time.Minute)
		d.reserve(withID(aPod("b", "1", "1Gi"), "node-1", "new"))
		assert.Equal(t, 2, kept(), "by age, but as long as the reservation lasts")
		before := d.ledger.Revision()
		assert.Empty(t, d.reserve(long).Error)
		assert.Equal(t, before, d.ledger.Revision())
	})
}

package rest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestPodsTheInformerKnows(t *testing.T) {
	now := metav1.NewTime(startTime)
	tests := map[string]struct {
		informer func(*v1.Pod)
		request  func(*v1.Pod)
		reason   string // empty: granted
		cpu      int64  // of the allocation
	}{
		"same": {cpu: 1000},
		"without UID, takes the informer's": {
			request: func(p *v1.Pod) { p.UID = "" }, cpu: 1000,
		},
		"by name only": {
			request: func(p *v1.Pod) { p.UID, p.Spec = "", v1.PodSpec{} }, cpu: 1000,
		},
		"cut-down copy counts in full": {
			request: func(p *v1.Pod) { p.Spec.Containers[0].Resources = v1.ResourceRequirements{} }, cpu: 1000,
		},
		"recreated: the request's UID wins": {
			request: func(p *v1.Pod) {
				p.UID = "new"
				p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2")
			},
			cpu: 2000,
		},
		"finished":        {informer: func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, reason: "PodGone"},
		"deleting":        {informer: func(p *v1.Pod) { p.DeletionTimestamp = &now }, reason: "PodGone"},
		"bound elsewhere": {informer: func(p *v1.Pod) { p.Spec.NodeName = "node-2" }, reason: "AllocatedElsewhere"},
		"bound there":     {informer: func(p *v1.Pod) { p.Spec.NodeName = "node-1" }, cpu: 1000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			known, asked := aPod("a", "1", "1Gi"), aPod("a", "1", "1Gi")
			if tc.informer != nil {
				tc.informer(known)
			}
			if tc.request != nil {
				tc.request(asked)
			}
			if known.Spec.NodeName != "" {
				f.bind(known, known.Spec.NodeName)
			}
			f.see(known)
			other := aPod("other", "1", "1Gi")
			answer := f.reserve(body{
				SchedulerName: testScheduler, Pods: []*v1.Pod{other, asked}, Nodes: []string{"node-3", "node-1"},
			})
			if tc.reason != "" {
				require.Len(t, answer.Rejections, 1)
				assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
				assert.Equal(t, []string{"a"}, answer.FailedPods)
				assert.NotEmpty(t, answer.Error)
				assert.Equal(t, ledger.NoAllocation.String(), f.state(other), "all or nothing")
				return
			}
			assert.Empty(t, answer.Error)
			if asked.UID == "" {
				asked.UID = known.UID
			}
			assert.Equal(t, tc.cpu, f.countsFor(ledger.PodRef{Namespace: "team-a", Name: "a", UID: asked.UID}).Value(resources.CPU))
		})
	}
}

package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// A node that somebody describes is as they say, less what is known of its name.
func TestFitTemplate(t *testing.T) {
	l := New(Options{})
	l.ObserveNode(NodeObservation{Name: "here", Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: 4000},
		{Column: resources.Pods, Value: 10},
	}})
	request := &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: 1000},
		{Column: resources.Pods, Value: 1},
	}}
	l.ObservePod(PodObservation{Pod: PodRef{Namespace: "ns", Name: "left", UID: "left"}, Node: "gone", Request: request})
	l.ObservePod(PodObservation{Pod: PodRef{Namespace: "ns", Name: "bound", UID: "bound"}, Node: "here", Request: request})
	offered := func(milliCPU int64) map[v1.ResourceName]int64 {
		return map[v1.ResourceName]int64{"cpu": milliCPU, "pods": 2}
	}
	for name, tt := range map[string]struct {
		pod  PodRef
		node Template
		want Reason
	}{
		"fits":                       {PodRef{Name: "p"}, Template{Name: "new", Offered: offered(1000)}, Fits},
		"too small":                  {PodRef{Name: "p"}, Template{Name: "new", Offered: offered(999)}, InsufficientResource},
		"beside a pod that is there": {PodRef{Name: "p"}, Template{Name: "gone", Offered: offered(2000)}, Fits},
		"a pod that is there has it": {
			PodRef{Name: "p"},
			Template{Name: "gone", Offered: offered(1999)},
			InsufficientResource,
		},
		"exists": {PodRef{Name: "p"}, Template{Name: "here", Offered: offered(9000)}, NodeUnknown},
		"bound elsewhere": {
			PodRef{Namespace: "ns", Name: "bound", UID: "bound"},
			Template{Name: "new", Offered: offered(1000)},
			AllocatedElsewhere,
		},
		"says nothing": {PodRef{Name: "p"}, Template{Name: "new"}, NodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, l.FitTemplate(&Placement{Pod: tt.pod, Request: request}, &tt.node).Reason)
		})
	}
}

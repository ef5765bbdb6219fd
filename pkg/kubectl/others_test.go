package kubectl

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What the server tells a caller of namespaces that it may not see has no names. It is shown as that of others.
func TestOthersHaveNoNames(t *testing.T) {
	r := newRig(t)
	pod, node := pendingPod(), nodeAccounts()[1]
	pod.Closest.Holders = []reserver.Holder{{State: "Bound", Amount: 1500}}
	node.Devices[0].Pods = []reserver.PodName{{}}
	r.routes = map[string]any{
		"/v1/explain?namespace=default&pod=web-1": pod,
		"/v1/nodes/node-1": reserver.NodeAnswer{
			Node:        node,
			Allocations: []reserver.Allocation{{Node: "node-1", State: "Bound", Requests: reserver.Amounts{"cpu": 750}}},
			Slots: []reserver.NodeSlot{{Policy: "Once", Slot: reserver.Slot{
				Node: "node-1", Requests: reserver.Amounts{"cpu": 1250}, Free: reserver.Amounts{"cpu": 1250},
			}}},
		},
	}
	got := r.run(r.atServer("explain", "web-1")...)
	assert.Regexp(t, `\n  others +Bound +1.5 +<none>\n`, got.out)
	got = r.run(r.atServer("nodes", "node-1")...)
	assert.Regexp(t, `\n<none> +others +Bound +node-1 +0.75 `, got.out)
	assert.Regexp(t, `\nothers +<none> +cpu 1.25 +cpu 1.25 +<none> +never`, got.out)
	assert.Regexp(t, `\ngpu-a +nvidia.com/gpu +GPU-a +No +others +<none>`, got.out)
}

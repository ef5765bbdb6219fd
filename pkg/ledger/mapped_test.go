package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// What a node leaves to DRA is not what a pod lacks there, nor what a new node would have to offer.
func TestAdviceOnMappedResources(t *testing.T) {
	n := newGPUNode(t, 0)
	n.ObserveMapped([]string{gpuName})
	p := n.ask(2, 0)
	column, _ := n.Table().Lookup(gpuName)
	assert.True(t, n.FitsEmpty(p.Request), "another node is no help that this one would not be")
	node := &ledger.Template{Name: "new", Offered: map[v1.ResourceName]int64{v1.ResourcePods: 10}}
	assert.Equal(t, ledger.Fits, n.FitTemplate(p, node).Reason, "as the node that is there")
	assert.True(t, n.AppendUsage(nil, []string{"n"}, []resources.Column{column})[0].Elsewhere)
	all := func(string) bool { return true }
	assert.Equal(t, []ledger.Largest{{Resource: v1.ResourcePods, Requested: 1, Free: 100, Node: "n"}},
		n.Survey().Largest(p, all))
	node.Offered[gpuName] = 1
	assert.Equal(t, ledger.InsufficientResource, n.FitTemplate(p, node).Reason, "it offers some by count")
}

package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestAppendUsage(t *testing.T) {
	l := New(Options{})
	gpu, ok := l.Table().Intern("example.com/gpu")
	require.True(t, ok)
	l.ObserveNode(NodeObservation{Name: "a", Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 10},
	}})
	request := &resources.Request{Amounts: []resources.Amount{
		{Column: resources.CPU, Value: 5000}, {Column: resources.Pods, Value: 1}, {Column: gpu, Value: 2},
	}}
	l.ObservePod(PodObservation{Pod: PodRef{UID: "1"}, Node: "a", Request: request})
	l.ObservePod(PodObservation{Pod: PodRef{UID: "2"}, Node: "deleted", Request: request})

	columns := []resources.Column{gpu, resources.CPU}
	got := l.AppendUsage([]Usage{{7, 7}}, []string{"a", "unknown", "deleted"}, columns)
	assert.Equal(t, []Usage{
		{7, 7},
		{0, 2},
		{4000, 5000},
		{0, 0},
		{0, 0},
		{0, 2},
		{0, 5000},
	}, got)
	assert.Equal(t, int64(-1000), got[2].Free())

	nodes := []string{"a", "unknown"}
	assert.Zero(t, testing.AllocsPerRun(100, func() { got = l.AppendUsage(got[:0], nodes, columns) }))
}

//go:build costs && unix

package cluster

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/costs"
)

// A pod of the watch is decoded and made compact.
func TestCosts(t *testing.T) {
	_, lean := decoders()
	table, data := resources.NewTable(), encode(t, typicalPod(1))
	costs.Check(t, "decode a pod", func() { Compact(table, decoded(t, lean, data).(*v1.Pod)) })
}

//go:build costs && unix

package cluster

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/costs"
)

// A pod of the watch is decoded and made compact.
func TestCosts(t *testing.T) {
	_, lean := decoders()
	reader, data := gangReader(t), encode(t, typicalPod(1))
	costs.Check(t, "decode a pod", func() { reader.Compact(decoded(t, lean, data).(*v1.Pod)) })
}

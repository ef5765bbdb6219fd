//go:build costs && unix

package cluster

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/costs"
)

// A pod of the watch is decoded and made compact.
func TestCosts(t *testing.T) {
	_, lean := decoders()
	reader, data := gangReader(t), encode(t, typicalPod(1))
	costs.Check(t, "decode a pod", func() { reader.Compact(decoded(t, lean, data).(*v1.Pod)) })
}

// TestLongPodsAreKeptShort: nobody fills the server's memory by what is written into pods.
func TestLongPodsAreKeptShort(t *testing.T) {
	const pods, most = 100, 8 << 10
	for name, change := range longPods {
		t.Run(name, func(t *testing.T) {
			reader, kept := gangReader(t), make([]*Pod, pods)
			used := func() int64 {
				runtime.GC()
				runtime.GC() // what was unique goes with the second
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := used()
			for i := range kept {
				kept[i] = reader.Compact(newPod(change, "1"))
			}
			assert.Less(t, (used()-before)/pods, int64(most))
			runtime.KeepAlive(kept)
		})
	}
}

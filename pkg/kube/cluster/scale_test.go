//go:build unix

package cluster

import (
	"flag"
	"fmt"
	gort "runtime"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

// The size of BenchmarkScale. `make bench-scale` runs it with up to 130,000 nodes and 1,000,000 pods.
var (
	scaleNodes = flag.Int("scale-nodes", 5_000, "how many nodes BenchmarkScale has")
	scalePods  = flag.Int("scale-pods", 150_000, "how many pods BenchmarkScale has")
)

// scaledPods decodes one pod after another, as they come from an API server: each with memory of its own.
type scaledPods struct {
	encoded []byte
	decoder runtime.Decoder
}

func newScaledPods(b *testing.B) *scaledPods {
	_, lean := decoders()
	return &scaledPods{encode(b, typicalPod(0)), lean}
}

func (s *scaledPods) pod(b *testing.B, i int) *v1.Pod {
	pod := decoded(b, s.decoder, s.encoded).(*v1.Pod)
	pod.Name, pod.Namespace = fmt.Sprintf("worker-7c9f8d6b5-%06d", i), fmt.Sprintf("team-%d", i%50)
	pod.UID = types.UID(fmt.Sprintf("4f1c2d3e-0000-4000-8000-%012d", i))
	pod.Spec.NodeName, pod.ResourceVersion = fmt.Sprintf("node-%05d", i%*scaleNodes), strconv.Itoa(1000+i)
	return pod
}

// untold returns a cache that tells nobody and remembers nothing of what it would tell.
func untold() *Cache {
	options := (&told{}).options()
	options.OnPodBound = func(*Pod, bool) {}
	return New(fake.NewClientset(), ledger.New(ledger.Options{}).Observer(), options)
}

// BenchmarkScale measures what the server holds of a cluster of any size: pods in compact form, and the ledger.
func BenchmarkScale(b *testing.B) {
	before := heap()
	c, pods := untold(), newScaledPods(b)
	var fill costs.Meter
	fill.Start()
	for i := range *scaleNodes {
		c.observeNode(compactNode(c.reader.Table, typicalNode(i)))
	}
	for i := range *scalePods {
		c.observePod(c.reader.Compact(pods.pod(b, i)))
	}
	fill.Stop()
	used := heap() - before
	c.podWatch.synced.Open()
	c.nodeWatch.synced.Open()
	b.Run("Fill", func(b *testing.B) {
		for b.Loop() {
		}
		fill.Report(b, *scalePods)
		b.ReportMetric(float64(used)/float64(*scalePods), "B/pod")
		b.ReportMetric(float64(used)/(1<<20), "MiB")
	})
	b.Run("Relist", func(b *testing.B) { benchmarkRelist(b, c) })
	b.Run("Look", func(b *testing.B) { benchmarkLook(b, c) })
}

func heap() uint64 {
	gort.GC()
	var m gort.MemStats
	gort.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchmarkRelist is a full state after a gap in the watch, in which nothing has changed.
func benchmarkRelist(b *testing.B, c *Cache) {
	all := c.allPods()
	for i, held := range all { // the same pods, read anew
		again, request := *held, *held.Request
		again.Request = &request
		all[i] = &again
	}
	var m costs.Meter
	m.Start()
	for b.Loop() {
		podFollower{c}.replace(all, uint64(*scalePods+1000))
	}
	m.Stop()
	m.Report(b, b.N*len(all))
}

// benchmarkLook is one comparison of the ledger with the cache, of which the first follows a change of leader.
func benchmarkLook(b *testing.B, c *Cache) {
	comparer := NewComparer(c, fake.NewClientset(), ComparerOptions{})
	var m costs.Meter
	m.Start()
	for b.Loop() {
		found, err := comparer.find(b.Context(), false)
		if err != nil || len(found) > 0 {
			b.Fatalf("found %v, %v", found, err)
		}
	}
	m.Stop()
	m.Report(b, b.N**scalePods)
}

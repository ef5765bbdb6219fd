package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// TestInventedResourcesHideNoUse: pods that name resources of their own invention, and come first in the list of a
// server that starts, do not have it overlook what others use of a node, also where that offers none of it at the
// moment.
func TestInventedResourcesHideNoUse(t *testing.T) {
	const gpu, fpga = v1.ResourceName("example.com/gpu"), v1.ResourceName("example.com/fpga")
	asks := func(names ...v1.ResourceName) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for _, name := range names {
				p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
			}
		}
	}
	offers := func(n *v1.Node) {
		// its plugin is away
		n.Status.Allocatable[gpu], n.Status.Allocatable[fpga] = resource.MustParse("1"), resource.MustParse("0")
	}
	invented := make([]v1.ResourceName, 1000)
	for i := range invented {
		invented[i] = v1.ResourceName(fmt.Sprintf("invented.example.com/%d", i))
	}
	f := newFixture(
		objects(aPod("first", 2, on("n1"), asks(invented...)), aPod("second", 3, on("n1"), asks(gpu, fpga))),
		objects(aNode("n1", 1, "4", offers)),
	)
	f.nodeServer.down = errors.New("slow")
	synctest.Test(t, func(t *testing.T) {
		f.enterBubble()
		defer background.Run(t, f.Run)()
		pass(time.Second)
		f.nodeServer.mu.Lock()
		f.nodeServer.down = nil
		f.nodeServer.mu.Unlock()
		require.NoError(t, f.WaitForSync(t.Context()))
		for _, name := range []v1.ResourceName{gpu, fpga} {
			column, listed := f.reader.Table.Lookup(name)
			require.True(t, listed)
			usage := f.ledger.AppendUsage(nil, []string{"n1"}, []resources.Column{column})
			assert.EqualValues(t, 1, usage[0].Used, name)
		}
	})
}

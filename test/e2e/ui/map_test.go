//go:build e2e

package ui

import (
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// pixels is a script that counts the pixels of each color in a node's cell.
func pixels(node string) string {
	return fmt.Sprintf(`(p => {
		const {x, y} = p.placeOf(p.nodes.findIndex(n => n.name === %q)), seen = {}
		const all = document.querySelector('canvas').getContext('2d').getImageData(x, y, p.size, p.size).data
		for (let i = 0; i < all.length; i += 4) seen[all.slice(i, i + 3).join()] = (seen[all.slice(i, i + 3).join()] ?? 0) + 1
		return seen
	})(globalreserve.drawn.picture)`, node)
}

// cells: what a scheduler has bound has its color, which the legend says, and what is reserved is hatched.
func (c *cluster) cells() {
	var legend map[string]string
	c.browser.do(command{Do: "eval", Script: `Object.fromEntries([...document.querySelectorAll('.legend li')].map(li =>
		[li.innerText.trim().split(':')[0], getComputedStyle(li.querySelector('rect')).fill.replace(/[^0-9,]/g, '')]))`}, &legend)
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Nodes(c.T.Context())
		require.NoError(t, err)
		for _, n := range answer.Nodes {
			var seen map[string]int
			require.NoError(t, c.browser.try(command{Do: "eval", Script: pixels(n.Name)}, &seen))
			all, drawn := 0, 0
			for _, count := range seen {
				all += count
			}
			for _, scheduler := range []string{"default-scheduler", "second-scheduler"} {
				drawn += seen[legend["bound by "+scheduler]]
			}
			cpu := n.Resources["cpu"]
			assert.InDelta(t, float64(cpu.Bound)/float64(cpu.Allocatable), float64(drawn)/float64(all), 0.1, n.Name)
			assert.Equal(t, cpu.Reserved > 0, seen["63,74,87"] > 0, "what is reserved on %s is hatched", n.Name)
		}
	})
}

// choices: another resource, only some nodes, and a click that opens one.
func (c *cluster) choices() {
	c.browser.do(command{Do: "choose", Selector: "select", Text: "memory"}, nil)
	c.browser.wait(soon, "/Of [0-9.]+ GiB: /.test(document.querySelector('[data-testid=summary]').innerText)")
	c.browser.do(command{Do: "choose", Selector: "select", Text: "cpu"}, nil)
	c.browser.do(command{Do: "fill", Selector: "input[type=search]", Text: "BATCH"}, nil)
	c.browser.wait(soon, "globalreserve.drawn.picture.nodes.length === %d", raceNodes/3)
	c.browser.do(command{Do: "fill", Selector: "input[type=search]"}, nil)
	c.browser.wait(soon, "globalreserve.drawn.picture.nodes.length === %d", raceNodes)
	var at struct{ Name, X, Y string }
	c.browser.do(command{Do: "eval", Script: `(p => ({name: p.nodes[3].name, x: String(p.placeOf(3).x + p.size / 2),
		y: String(p.placeOf(3).y + p.size / 2)}))(globalreserve.drawn.picture)`}, &at)
	c.browser.do(command{Do: "click", Selector: "canvas", X: at.X, Y: at.Y}, nil)
	c.browser.shows("Node " + at.Name)
}

// draDevices gives a node two devices of DRA, one of which a claim has.
func (c *cluster) draDevices(node string) {
	c.Apply(fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec:
  driver: gpu.example.com
  nodeName: %[1]s
  pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: inference, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
`, node))
	claims := c.Client().ResourceV1().ResourceClaims(testbed.Namespace)
	claim, err := claims.Get(c.T.Context(), "inference", metav1.GetOptions{})
	require.NoError(c.T, err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "gpu.example.com", Pool: node, Device: "gpu-1"},
		},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "server-0", UID: "uid-of-server-0"},
	}
	_, err = claims.UpdateStatus(c.T.Context(), claim, metav1.UpdateOptions{})
	require.NoError(c.T, err)
}

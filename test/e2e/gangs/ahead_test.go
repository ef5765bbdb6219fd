//go:build e2e

package gangs

import (
	"testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A kube-scheduler that knows of nothing leads all members of a gang to what was made ahead for it, on a cluster where
// all nodes have free capacity besides.
func TestGangUsesWhatWasMadeAhead(t *testing.T) {
	c := newCluster(t, 8, shipped)
	c.startKubeScheduler()
	c.CreateReservation("ahead", "{ttl: 10m, consumers: {gang: {name: ring}}, slots: ["+
		"{name: a, nodeName: node-1, requests: {cpu: 1}}, {name: b, nodeName: node-4, requests: {cpu: 1}}, "+
		"{name: c, nodeName: node-6, requests: {cpu: 1}}]}")
	c.AwaitReservation("ahead", v1alpha1.ReservationAvailable)
	c.Create(testbed.NewPods(3, "ring", singles, "1",
		testbed.Annotated(v1alpha1.GangAnnotation, "ring", v1alpha1.GangMinAnnotation, "3"))...)
	c.AwaitReservation("ahead", v1alpha1.ReservationSucceeded)
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

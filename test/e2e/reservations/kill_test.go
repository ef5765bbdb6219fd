//go:build chaos

package reservations

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	kills     = 30
	killNodes = 20
	// lateExpiry is how long after its expiresAt an object may still be Available for us to read.
	lateExpiry = 3 * time.Second
)

// TestKilledAgainAndAgain kills the server at random moments of a load of reserves, binds, deletes
// and expiries. After each start it must hold what the API server says and what it acknowledged, and
// nothing else; no node may ever have more bound than it offers.
func TestKilledAgainAndAgain(t *testing.T) {
	// A server that starts waits for binds of the one before for as long as these may take.
	c := newCluster(t, "--finished-reservation-ttl=5s", "--bind-timeout=1500ms")
	l := newLoad(c, c.nodes(killNodes))
	stop := l.Run(t, workers)
	for kill := range kills {
		c.KillAtRandom()
		l.Paused(func() {
			c.Eventually(func(t *assert.CollectT) {
				assert.Empty(t, l.differences(t), "after start %d", kill+1)
			})
		})
		l.requireKept()
		c.RequireNeverOvercommitted()
	}
	l.AssertDone(t, kills,
		"gangs acknowledged", "pods of gangs bound", "gangs given back", "objects created", "objects deleted", "consumers bound", "pods deleted")
	stop()
}

// differences tells in which the server's ledger differs from what it must be.
func (l *load) differences(t require.TestingT) []string {
	pods, objects := l.Pods(), l.ListReservations()
	held, err := l.Ledger.Reservations(l.T.Context())
	require.NoError(t, err)
	require.Empty(t, held.Continue)
	slots := map[string]reserver.Slot{}
	capacities := map[string]string{}
	for _, r := range held.Reservations {
		for _, slot := range r.Slots {
			slots[r.Namespace+"/"+r.Name+"/"+slot.Name] = slot
			if slot.Pod != "" {
				capacities[slot.Pod] = slot.Node
			}
		}
	}
	found := l.allocationDifferences(t, pods)
	found = append(found, slotDifferences(objects, slots)...)
	unbound := map[string]bool{}
	for i := range pods {
		unbound[pods[i].Name] = pods[i].Spec.NodeName == ""
	}
	for pod, node := range l.promised(unbound) {
		if capacities[pod] != node {
			found = append(found, fmt.Sprintf("%s was promised capacity on %s, it has some on %q", pod, node, capacities[pod]))
		}
	}
	return found
}

// allocationDifferences compares the allocations with the bound pods, and looks for nodes that promise too much.
func (l *load) allocationDifferences(t require.TestingT, pods []corev1.Pod) (found []string) {
	allocations, err := l.Ledger.Allocations(l.T.Context())
	require.NoError(t, err)
	require.Empty(t, allocations.Continue)
	nodes, err := l.Ledger.Nodes(l.T.Context())
	require.NoError(t, err)
	on := map[string]string{}
	for _, allocation := range allocations.Allocations {
		if allocation.State != "Bound" {
			found = append(found, fmt.Sprintf("an allocation nobody asked for since the start: %+v", allocation))
		}
		on[allocation.UID] = allocation.Node
	}
	for i := range pods {
		if node := pods[i].Spec.NodeName; on[string(pods[i].UID)] != node {
			found = append(found, fmt.Sprintf("%s is on %q, its allocation on %q", pods[i].Name, node, on[string(pods[i].UID)]))
		}
		delete(on, string(pods[i].UID))
	}
	for uid, node := range on {
		found = append(found, fmt.Sprintf("an allocation on %s of a pod that is gone: %s", node, uid))
	}
	for _, node := range nodes.Nodes {
		if node.Overcommitted {
			found = append(found, fmt.Sprintf("more is promised than there is: %+v", node))
		}
	}
	return found
}

// slotDifferences compares what objects say they hold with what is held.
func slotDifferences(objects []v1alpha1.Reservation, slots map[string]reserver.Slot) (found []string) {
	for i := range objects {
		rsv := &objects[i]
		status := &rsv.Status
		if at := status.ExpiresAt; status.Phase == v1alpha1.ReservationAvailable && at != nil && time.Since(at.Time) > lateExpiry {
			found = append(found, fmt.Sprintf("%s should have expired at %s", rsv.Name, at))
		}
		if status.Phase == "" {
			found = append(found, rsv.Name+" has no status yet")
		}
		for k := range status.Slots {
			slot := &status.Slots[k]
			shared := rsv.Spec.AllocatePolicy != v1alpha1.AllocateOnce
			name := rsv.Namespace + "/" + rsv.Name + "/" + slot.Name
			got, held := slots[name]
			delete(slots, name)
			want := status.Phase == v1alpha1.ReservationAvailable &&
				(slot.State == v1alpha1.SlotReserved || (shared && slot.State == v1alpha1.SlotConsumed))
			switch {
			case want != held:
				found = append(found, fmt.Sprintf("%s is %s %s, and held: %t", name, status.Phase, slot.State, held))
			case held && got.Node != slot.NodeName:
				found = append(found, fmt.Sprintf("%s is on %s, and held on %s", name, slot.NodeName, got.Node))
			case held && (status.ExpiresAt == nil || !status.ExpiresAt.Time.Equal(got.ExpiresAt)):
				found = append(found, fmt.Sprintf("%s expires at %s, in the ledger at %s", name, status.ExpiresAt, got.ExpiresAt))
			case held && len(got.Consumers) != len(slot.Pods):
				found = append(found, fmt.Sprintf("%s is used by %v, in the ledger by %v", name, slot.Pods, got.Consumers))
			}
		}
	}
	for name := range slots {
		found = append(found, name+" is held for no object")
	}
	return found
}

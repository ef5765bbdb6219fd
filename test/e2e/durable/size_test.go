//go:build e2e

package durable

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// etcdLimit is the largest value etcd takes with its default settings.
const etcdLimit = 1536 << 10

// TestLargestGang: 1,000 pods are one object, written once, that etcd takes even when all slots are
// used; one pod more is refused with the limit.
func TestLargestGang(t *testing.T) {
	// The quick times leave a write less time than the API server may take for objects that large.
	c := clusterOn(t, shared.StartT(t), 50, true)
	created := make(chan int64, 10)
	c.Proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if isCreate(r) {
			created <- r.ContentLength
		}
		return controlplane.Fault{}
	})
	for name, prefix := range map[string]string{"short names": "worker", "as long as a label allows": strings.Repeat("w", 59)} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			answer := c.Reserve(c.bigGang(prefix, v1alpha1.MaxSlots, "1m"))
			require.Empty(t, answer.Error)
			sent := <-created
			require.Empty(t, created, "one write")
			require.Len(t, c.ListReservations(), 1, "one object")
			require.Len(t, c.Held(), v1alpha1.MaxSlots)
			reserved := c.stored(answer.Reservation)
			object := c.ListReservations()[0]
			require.Len(t, object.Spec.Slots, v1alpha1.MaxSlots)
			t.Logf("sent %d bytes, stored %d with its status, etcd takes %d", sent, reserved, etcdLimit)
			fmt.Printf("SUMMARY a gang of %d pods with %s: one object, one write of %d bytes, %d bytes in the store with status and records (limit %d)\n",
				v1alpha1.MaxSlots, name, sent, reserved, etcdLimit)
			assert.Less(t, reserved, etcdLimit)
			c.giveBack(answer.Reservation)
		})
	}
	c.Proxy.SetFault(nil)
	for name, gang := range map[string]*reserver.Request{
		"more pods than an object has slots": c.bigGang("worker", v1alpha1.MaxSlots+1, "1m"),
		"more than etcd takes at once":       c.bigGang(strings.Repeat("w", 240), v1alpha1.MaxSlots, "1m"),
	} {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			answer := c.Reserve(gang)
			require.Empty(t, answer.Error)
			require.True(t, answer.Durable)
			require.Greater(t, len(c.ListReservations()), 1, "it becomes several objects")
			require.Len(t, c.Held(), len(gang.Pods))
			require.Empty(t, c.Unreserve(&reserver.Request{SchedulerName: scheduler, Pods: gang.Pods}).Error)
		})
	}
	assert.Empty(t, c.ListReservations())
	assert.Empty(t, c.Held())
}

// stored returns how many bytes an object has as the API server keeps it, once its status says of
// each slot where it is.
func (c *cluster) stored(reservation string) int {
	c.T.Helper()
	_, name, _ := strings.Cut(reservation, "/")
	size := 0
	c.Eventually(func(t *assert.CollectT) {
		raw, err := c.Objects.GlobalreserveV1alpha1().RESTClient().Get().
			Namespace(c.Namespace).Resource("reservations").Name(name).DoRaw(c.T.Context())
		assert.NoError(t, err)
		assert.Equal(t, v1alpha1.MaxSlots, strings.Count(string(raw), `"state":"Reserved"`))
		size = len(raw)
	})
	return size
}

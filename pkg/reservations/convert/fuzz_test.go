package convert

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// FuzzSlots: whatever an object says, its status included, it is slots of the ledger or an error.
func FuzzSlots(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata":{"namespace":"ns","name":"r","uid":"u"},"spec":{"slots":[{"name":"a","nodeName":"n","requests":{"cpu":"1"}}]}}`,
		`{"spec":{"slots":[{"requests":{"cpu":"-1"}},{"requests":{"cpu":"99999999999999999999"}}]},"status":{"slots":[{},{"nodeName":"x"}]}}`,
		`{"spec":{"slots":[{"name":"a"},{"name":"a"}],"ttl":"-1h"},"status":{"phase":"Available","slots":[{"name":"b","phase":"Consumed"}]}}`,
		`{"spec":{"ttl":"99999999h"},"status":{"expiresAt":"9999-12-31T23:59:59Z"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rsv v1alpha1.Reservation
		if len(data) > 64<<10 || json.Unmarshal(data, &rsv) != nil {
			return
		}
		table := resources.NewTable()
		if slots, err := Slots(table, &rsv); err == nil {
			assert.LessOrEqual(t, len(slots), len(rsv.Spec.Slots))
		}
		if slots, err := GrantedSlots(table, &rsv); err == nil {
			assert.LessOrEqual(t, len(slots), len(rsv.Spec.Slots))
		}
		_ = Deadline(&rsv)
		_ = Granted(&rsv)
	})
}

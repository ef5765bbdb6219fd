package ledger_test

import (
	"fmt"
	"maps"
	"math/big"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// checkTotals adds up what readers are told of nodes, and returns an error where the ledger's own sums differ.
// It looks at one of eight revisions, for it takes a while.
func checkTotals(l *ledger.Ledger) error {
	if l.Revision()%8 != 0 {
		return nil
	}
	amounts, devices := map[v1.ResourceName]*[5]big.Int{}, map[string]*ledger.DeviceTotal{}
	nodes, _ := l.Nodes()
	for i := range nodes {
		if nodes[i].Exists {
			addAmounts(amounts, &nodes[i])
			addDevices(devices, &nodes[i])
		}
	}
	got := l.Totals()
	for name, want := range amounts {
		have := ledger.Total{}
		if t := got.Amounts[name]; t != nil {
			have = *t
		}
		for i, value := range []int64{have.Allocatable, have.Bound, have.Reserved, have.Free, have.Overcommitted} {
			// Sums that no int64 has stop at its ends.
			if want[i].IsInt64() && want[i].Int64() != value {
				return fmt.Errorf("the nodes have %v of %s together, the totals say %+v", want, name, have)
			}
		}
	}
	reserved := map[v1.ResourceName]*big.Int{}
	for by, value := range got.Reserved {
		if reserved[by.Resource] == nil {
			reserved[by.Resource] = &big.Int{}
		}
		reserved[by.Resource].Add(reserved[by.Resource], big.NewInt(value))
	}
	for name, sum := range reserved {
		if sum.IsInt64() && (got.Amounts[name] == nil || got.Amounts[name].Reserved != sum.Int64()) {
			return fmt.Errorf("schedulers have %v of %s reserved together, the totals say %+v", sum, name, got.Amounts[name])
		}
	}
	if !maps.EqualFunc(got.Devices, devices, func(a, b *ledger.DeviceTotal) bool { return *a == *b }) {
		return fmt.Errorf("the devices are %v, the totals say %v", devices, got.Devices)
	}
	return nil
}

func addAmounts(sums map[v1.ResourceName]*[5]big.Int, n *ledger.NodeView) {
	for _, a := range n.Amounts {
		if sums[a.Resource] == nil {
			sums[a.Resource] = &[5]big.Int{}
		}
		for i, value := range []int64{a.Allocatable, a.Bound, a.Reserved, max(a.Free, 0), max(-a.Free, 0)} {
			sum := &sums[a.Resource][i]
			sum.Add(sum, big.NewInt(value))
		}
	}
}

func addDevices(sums map[string]*ledger.DeviceTotal, n *ledger.NodeView) {
	for i := range n.Devices {
		d := &n.Devices[i]
		if sums[d.Resource] == nil {
			sums[d.Resource] = &ledger.DeviceTotal{}
		}
		sum := sums[d.Resource]
		sum.All++
		switch {
		case len(d.Pods) > 0 || d.Slot.Name != "":
			sum.Used++
		case d.Free:
			sum.Free++
		}
	}
}

package ledger

import (
	"maps"
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ObserveMapped records which resources DeviceClasses map to DRA devices, and returns those that no class mapped
// before. Pods that ask for these may have been refused for want of them, and the ledger has no event for that change.
// Where a node offers none of such a resource by count, kube-scheduler leaves it to DRA and allocates devices to the
// pods that ask for it. So the ledger does not count it there, and the webhook decides on the devices instead.
func (l Observer) ObserveMapped(names []string) (added []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mapped := map[resources.Column]bool{}
	for _, name := range names {
		column, ok := l.table.Offer(v1.ResourceName(name))
		if !ok {
			continue
		}
		mapped[column] = true
		if !l.mapped[column] {
			added = append(added, name)
		}
	}
	if maps.Equal(mapped, l.mapped) {
		return nil
	}
	l.mapped = mapped
	l.widen()
	for i, n := range l.nodes {
		if n != nil {
			l.refresh(int32(i))
		}
	}
	return added
}

// offered is how much there is of a resource on a node.
func (l *account) offered(n *node, c resources.Column) int64 {
	offered := at(n.allocatable, c)
	if offered == 0 && l.mapped[c] {
		return math.MaxInt64
	}
	return offered
}

// leftToDRA reports whether a node leaves a resource to DRA.
func (l *account) leftToDRA(i int32, c resources.Column) bool {
	return l.mapped[c] && at(l.nodes[i].allocatable, c) == 0
}

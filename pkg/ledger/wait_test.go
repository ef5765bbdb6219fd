//go:build costs

package ledger_test

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Who reads a whole account has decisions wait while it is copied, and not while the copy is put in order, which takes
// most of the time.
func TestDecisionsDoNotWaitForOrder(t *testing.T) {
	const nodes, pods, rounds, many = 1_000, 60_000, 30, 100
	l := ledger.New(ledger.Options{})
	for i := range nodes {
		l.ObserveNode(offer(nodeName(i), 64_000, 256<<30, 250))
	}
	for _, i := range rand.Perm(pods) {
		l.ObservePod(ledger.PodObservation{
			Pod: podRef(fmt.Sprintf("worker-7c9f8d6b5-%06d", i)), Node: nodeName(i % nodes), Request: request(10, 1<<20),
			ResourceVersion: uint64(i + 1),
		})
	}
	for name, read := range map[string]func() (revision uint64){
		"Allocations": func() uint64 { _, revision := l.Allocations(); return revision },
		"Snapshot":    func() uint64 { return l.Snapshot().Revision },
	} {
		var meanwhile uint64
		for round := 0; round < rounds && meanwhile < many; round++ { // on a busy machine nobody else may have had a turn
			meanwhile = max(meanwhile, changesAfterCopy(l, read))
		}
		t.Logf("%s: %d", name, meanwhile)
		assert.GreaterOrEqual(t, meanwhile, uint64(many), "%s: changes between the revision of the copy and its end", name)
	}
}

// changesAfterCopy counts the changes that are made between the revision a reader returns and its end.
func changesAfterCopy(l *ledger.Ledger, read func() (revision uint64)) uint64 {
	done := make(chan uint64)
	go func() {
		revision := read()
		done <- l.Revision() - revision
	}()
	for i := 0; ; i++ {
		select {
		case count := <-done:
			return count
		default:
			l.ObserveNode(offer("other", int64(1000+i%2), 1<<30, 10))
		}
	}
}

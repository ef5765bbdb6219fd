package requeue

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// maxHolders is how many of the holders of a refusal are remembered, and maxMessage how many bytes of its message.
	maxHolders = 3
	maxMessage = 500
)

// The paths by which pods are refused.
const (
	Filter    = "filter"
	Bind      = "bind"
	Admission = "admission"
	Reserve   = "reserve" // of /reserve, and of the Go API
	Plugin    = "plugin"  // of the scheduler in the same process, and of plugins elsewhere that report it
	Object    = "object"  // of a Reservation
	Watch     = "watch"   // of a pod that was bound without asking; where a server only observes
	Resize    = "resize"  // of a pod that has its node
)

// Refusal is one pod that one call refused. A call of filter asks about many nodes: it is one refusal, with the reasons
// counted by node, where no node is left, and none where one is. A call for a gang is a refusal of each of its pods
// that was refused. It is not changed once Pods have it.
type Refusal struct {
	// Number is one more than that of the refusal before.
	Number uint64
	At     time.Time
	// Path is one of those above.
	Path              string
	Caller, Scheduler string
	// Reason is the ledger's, or one of those of the arbiter. Message says it in words where Rejection does not.
	Reason, Message string
	// Observed says that it was not refused: the server only observes, and the pod has the node.
	Observed bool
	// Warned says that it went ahead all the same: the admission webhook only warns.
	Warned bool
	// Times is how often a repeated Binding was refused by now, 0 where it is the first time.
	// Among the latest refusals are those whose Times IsRound.
	Times int
	// Rejection has the pod and, where one node was asked about, that node; else the one where the pod lacked least.
	Rejection ledger.Rejection
	// Reasons counts the nodes asked about by the reason they were refused for, most first; empty where it was one node.
	Reasons []Count
}

// Count is how many nodes were refused for a reason.
type Count struct {
	Reason ledger.Reason
	Nodes  int
}

// CountReasons counts the nodes of verdicts that refuse by their reasons, most first.
func CountReasons(verdicts []ledger.Verdict) (counts []Count) {
	for _, v := range verdicts {
		if v.Reason == ledger.Fits {
			continue
		}
		k := slices.IndexFunc(counts, func(c Count) bool { return c.Reason == v.Reason })
		if k < 0 {
			k = len(counts)
			counts = append(counts, Count{Reason: v.Reason})
		}
		counts[k].Nodes++
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes),
			cmp.Compare(a.Reason, b.Reason))
	})
	return slices.Clip(counts)
}

// waits reports whether the pod waits since it was refused. The others are not there yet, have a node, or went ahead.
func (r *Refusal) waits() bool {
	return r.Rejection.Pod.UID != "" && r.Path != Resize && r.Path != Object && !r.Observed && !r.Warned
}

// Waiter is a pod that was refused and is not known to be bound or gone since.
type Waiter struct {
	// Since is when it was refused first, and Last its last refusal.
	Since time.Time
	Last  *Refusal
	// Times is how often it was refused.
	Times int
}

// IsRound reports whether a number of times is 1, 10, 100 and so on, or 0: the ones that are reported.
func IsRound(times int) bool {
	for times >= 10 && times%10 == 0 {
		times /= 10
	}
	return times <= 1
}

// compact lets go of what r would keep of requests, and of what is more than is remembered.
func (r *Refusal) compact() {
	for _, s := range []*string{
		&r.Caller, &r.Scheduler, &r.Rejection.Pod.Namespace, &r.Rejection.Slot.Namespace,
		&r.Rejection.Node, &r.Rejection.Resource,
	} {
		*s = unique.Make(*s).Value()
	}
	r.Rejection.Pod.Name = strings.Clone(r.Rejection.Pod.Name)
	r.Rejection.Pod.UID = types.UID(strings.Clone(string(r.Rejection.Pod.UID)))
	if len(r.Message) > maxMessage {
		r.Message = strings.ToValidUTF8(r.Message[:maxMessage], "") + "..."
	}
	if len(r.Rejection.Holders) > maxHolders {
		r.Rejection.Holders = slices.Clone(r.Rejection.Holders[:maxHolders])
	}
}

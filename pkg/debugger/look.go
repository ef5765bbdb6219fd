package debugger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// pause is the time between the two looks of a comparison.
const pause = 3 * time.Second

// API is what live lists are asked of.
type API struct {
	Core    kubernetes.Interface
	Objects versioned.Interface
}

// Account is the account of a server, and what that is complete in.
type Account struct {
	reserver.DumpAnswer
	Ledger ledger.Reader
}

// Report is how the account of a server differs from the cluster.
type Report struct {
	Server    string
	Undecided string `json:",omitempty"`
	// Compared are the kinds of objects that were compared.
	Compared    []string
	Differences []Difference
}

// Difference is one thing that an account has otherwise than the cluster.
type Difference struct {
	Kind cluster.Kind
	// Object is a kind in lower case and a name, such as "pod default/web-0".
	Object string
	UID    types.UID `json:",omitempty"`
	Node   string    `json:",omitempty"`
	// Ledger and Cluster say in words what each side has.
	Ledger, Cluster string
}

// same reports whether two looks show the same thing: a pod that was bound meanwhile, say, differs in another way.
func (d *Difference) same(o *Difference) bool {
	return d.Kind == o.Kind && d.Object == o.Object && d.UID == o.UID
}

// String says it in one line.
func (d *Difference) String() string {
	return fmt.Sprintf("%s: %s: the ledger has %s, the cluster has %s", d.Kind, d.Object, d.Ledger, d.Cluster)
}

// Compare compares the account of a server with what the API server lists. What differs counts if it still does at
// a second look.
func Compare(ctx context.Context, api API, account func(context.Context) (*Account, error)) (*Report, error) {
	first, err := once(ctx, api, account)
	if err != nil || len(first.Differences) == 0 {
		return first, err
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, err := once(ctx, api, account)
	if err != nil {
		return nil, err
	}
	second.Differences = slices.DeleteFunc(second.Differences, func(d Difference) bool {
		return !slices.ContainsFunc(first.Differences, func(before Difference) bool { return d.same(&before) })
	})
	return second, nil
}

// ErrIncomplete is why an account cannot be compared.
var ErrIncomplete = errors.New("the server has not read all pods and nodes yet: ask again in a moment")

// once is one look. Its lists are consistent, but not of one moment.
func once(ctx context.Context, api API, account func(context.Context) (*Account, error)) (*Report, error) {
	a, err := account(ctx)
	switch {
	case err != nil:
		return nil, err
	case !a.Pods:
		return nil, fmt.Errorf("%w (%s)", ErrIncomplete, cmp.Or(a.Undecided, a.Server))
	}
	l := look{Reader: a.Ledger, api: api, report: &Report{
		Server: a.Server, Undecided: a.Undecided, Compared: []string{"nodes", "pods"}, Differences: []Difference{},
	}}
	if err := cluster.CompareLive(ctx, a.Ledger, api.Core, l.listed, l.differs); err != nil {
		return nil, err
	}
	if a.Objects {
		l.report.Compared = append(l.report.Compared, "reservations", "extendedresources", "extendedresourceclaims")
		if err := errors.Join(l.reservations(ctx), l.devices(ctx)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(l.report.Differences, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.Object, y.Object), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.UID, y.UID))
	})
	return l.report, nil
}

// look collects what one look finds.
type look struct {
	ledger.Reader
	api    API
	report *Report
	// claiming are the bound pods that were given devices.
	claiming []*cluster.Pod
}

func (l *look) add(d Difference) { l.report.Differences = append(l.report.Differences, d) }

// listed is told of every pod.
func (l *look) listed(pod *cluster.Pod) {
	if pod.Bound() && pod.Devices != nil {
		l.claiming = append(l.claiming, pod)
	}
}

// differs is told of what differs in pods and nodes.
func (l *look) differs(d cluster.Difference) {
	object, uid := "node "+d.Node, types.UID("")
	if d.Pod.Name != "" {
		object, uid = podName(d.Pod), d.Pod.UID
	}
	l.add(Difference{Kind: d.Kind, Object: object, UID: uid, Node: d.Node, Ledger: d.Ledger, Cluster: d.Cluster})
}

func podName(pod ledger.PodRef) string { return "pod " + pod.Namespace + "/" + pod.Name }

package debugger

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// pause is the time between the two looks of a comparison.
	pause = 3 * time.Second
	// maxTold is how many differences are listed one by one.
	maxTold = 1000
)

// Comparer compares the account of the server it is part of. All fields are needed.
type Comparer struct {
	// Core lists pods and nodes. It is not the client that feeds the ledger: what that one cuts off, or reads
	// wrongly, has to show here.
	Core    kubernetes.Interface
	Objects versioned.Interface
	Ledger  ledger.Reader
	// About says which parts of the account are complete.
	About func() reserver.DumpAnswer
}

// Diff compares the account of the server with what the API server lists. A difference counts if a second look finds it
// again. The errors are of package httpjson where they say what the caller has to do.
func (c *Comparer) Diff(ctx context.Context) (*reserver.DiffAnswer, error) {
	first, err := c.once(ctx)
	if err != nil || len(first.Differences) == 0 {
		return first, err
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, err := c.once(ctx)
	if err != nil {
		return nil, err
	}
	before := map[reserver.Difference]bool{}
	for i := range first.Differences {
		before[what(&first.Differences[i])] = true
	}
	second.Differences = slices.DeleteFunc(second.Differences,
		func(d reserver.Difference) bool { return !before[what(&d)] })
	if more := len(second.Differences) - maxTold; more > 0 {
		second.Differences, second.More = second.Differences[:maxTold], more
	}
	return second, nil
}

// what is what two looks have to agree in: a pod that was bound meanwhile, say, differs in another way.
func what(d *reserver.Difference) reserver.Difference {
	return reserver.Difference{Kind: d.Kind, Object: d.Object, UID: d.UID}
}

// once is one look. Its lists are consistent, but not of one moment.
func (c *Comparer) once(ctx context.Context) (*reserver.DiffAnswer, error) {
	about := c.About()
	if !about.Pods {
		return nil, httpjson.Errorf(http.StatusServiceUnavailable,
			"the server has not read all pods and nodes yet (%s): ask again in a moment", cmp.Or(about.Undecided, about.Server))
	}
	l := look{Reader: c.Ledger, objects: c.Objects, found: &reserver.DiffAnswer{
		Server: about.Server, Undecided: about.Undecided, Compared: []string{"nodes", "pods"},
		Differences: []reserver.Difference{},
	}}
	if err := cluster.CompareLive(ctx, c.Ledger, c.Core, l.listed, l.differs); err != nil {
		return nil, err
	}
	if about.Objects {
		l.found.Compared = append(l.found.Compared, "reservations", "extendedresources", "extendedresourceclaims")
		if err := errors.Join(l.reservations(ctx), l.devices(ctx)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(l.found.Differences, func(x, y reserver.Difference) int {
		return cmp.Or(cmp.Compare(x.Object, y.Object), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.UID, y.UID))
	})
	return l.found, nil
}

// look collects what one look finds.
type look struct {
	ledger.Reader
	objects versioned.Interface
	found   *reserver.DiffAnswer
	// claiming are the bound pods that were given devices.
	claiming []*cluster.Pod
}

func (l *look) add(d reserver.Difference) { l.found.Differences = append(l.found.Differences, d) }

// listed is called with every pod.
func (l *look) listed(pod *cluster.Pod) {
	if pod.Bound() && pod.Devices != nil {
		l.claiming = append(l.claiming, pod)
	}
}

// differs is called with every difference of pods and nodes.
func (l *look) differs(d cluster.Difference) {
	object, uid := "node "+d.Node, ""
	if d.Pod.Name != "" {
		object, uid = podName(d.Pod), string(d.Pod.UID)
	}
	l.add(reserver.Difference{
		Kind: string(d.Kind), Object: object, UID: uid, Node: d.Node, Ledger: d.Ledger,
		Cluster: d.Cluster,
	})
}

func podName(pod ledger.PodRef) string { return "pod " + pod.Namespace + "/" + pod.Name }

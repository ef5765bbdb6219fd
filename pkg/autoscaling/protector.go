package autoscaling

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// fieldManager is the name under which nodes are annotated. It is no name of a term: the next server takes off what
// this one has put on, and the server that decides corrects what one before it writes late.
const fieldManager = "globalreserve-autoscaling"

const (
	// lookEvery is how often Protector and Provisioner look for what is to be written.
	lookEvery = time.Second
	// protectAfter is for how long something has to be kept on a node until that is written: gangs that are bound at
	// once would be two writes for each node.
	protectAfter = 3 * time.Second
	// releaseAfter is for how long nothing is kept there until it is taken off.
	releaseAfter = 10 * time.Second
)

// against are the annotations that keep autoscalers from removing a node.
var against = []string{v1alpha1.ScaleDownDisabledAnnotation, v1alpha1.DoNotDisruptAnnotation}

// Protector annotates the nodes that reservations keep unused capacity on. Make it with NewProtector; it can run once.
type Protector struct {
	*writes

	// since is since when a node keeps something and does not say so, or the other way around, and tried when that was
	// written last. Run alone uses them.
	since, tried map[types.UID]time.Time
}

// NewProtector makes a Protector and starts nothing.
func NewProtector(o Options) *Protector {
	return &Protector{
		writes: newWrites("Node", o),
		since:  map[types.UID]time.Time{}, tried: map[types.UID]time.Time{},
	}
}

// Run annotates nodes until ctx ends.
func (p *Protector) Run(ctx context.Context) error {
	for informer.Pause(ctx, lookEvery) {
		if p.Ledger.Ready() != nil {
			clear(p.since)
			continue
		}
		for _, c := range p.look(p.Ledger.Clock.Now()) {
			if p.Ledger.Ready() != nil || p.limiter.Wait(ctx) != nil {
				break
			}
			p.write(ctx, c)
		}
	}
	return nil
}

// change is what a node is to have.
type change struct {
	node  *cluster.Node
	keeps bool
}

// look returns nodes whose annotations have been wrong for long enough: those that keep something first, then those
// that were not tried yet. They are no more than can be written at once, because what is kept changes meanwhile.
func (p *Protector) look(now time.Time) (due []change) {
	wrong := p.wrong()
	maps.DeleteFunc(p.since, func(uid types.UID, _ time.Time) bool { _, ok := wrong[uid]; return !ok })
	maps.DeleteFunc(p.tried, func(uid types.UID, _ time.Time) bool { _, ok := wrong[uid]; return !ok })
	for uid, c := range wrong {
		since, known := p.since[uid]
		if !known {
			p.since[uid], since = now, now
		}
		wait := releaseAfter
		if c.keeps {
			wait = protectAfter
		}
		tried, again := p.tried[uid]
		if now.Sub(since) >= wait && (!again || now.Sub(tried) >= againAfter) {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b change) int {
		if a.keeps != b.keeps {
			if a.keeps {
				return -1
			}
			return 1
		}
		return cmp.Or(p.tried[a.node.UID].Compare(p.tried[b.node.UID]), cmp.Compare(a.node.Name, b.node.Name))
	})
	return due[:min(len(due), writesPerSecond)]
}

// wrong returns the nodes whose annotations are not as they are to be.
func (p *Protector) wrong() map[types.UID]change {
	keeping := map[string]struct{}{}
	if p.Policy.Current().Autoscaling.ProtectNodes {
		keeping = p.Ledger.Keeping()
	}
	wrong := map[types.UID]change{}
	for name := range keeping {
		if node, ok := p.Nodes.Node(name); ok && !says(node.Annotations) {
			wrong[node.UID] = change{node, true}
		}
	}
	for _, node := range p.Nodes.KeepingNodes() {
		if _, keeps := keeping[node.Name]; !keeps {
			wrong[node.UID] = change{node, false}
		}
	}
	return wrong
}

// says reports whether a node has all annotations of one that keeps something. The values of those that autoscalers go
// by may be somebody else's.
func says(annotations map[string]string) bool {
	for _, key := range against {
		if _, ok := annotations[key]; !ok {
			return false
		}
	}
	return annotations[v1alpha1.KeepsCapacityAnnotation] == "true"
}

// annotations are those that a node is to have from here.
func (c *change) annotations() map[string]string {
	wanted := map[string]string{}
	if !c.keeps {
		return wanted
	}
	wanted[v1alpha1.KeepsCapacityAnnotation] = "true"
	for _, key := range against {
		if value, ok := c.node.Annotations[key]; !ok || value == "true" {
			wanted[key] = "true"
		}
	}
	return wanted
}

// write gives a node what it is to have.
func (p *Protector) write(ctx context.Context, c change) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	p.tried[c.node.UID] = p.Ledger.Clock.Now() // also where it is carried out: what somebody else owns stays as it is
	err := p.apply(ctx, c)
	if err != nil && ctx.Err() == context.Canceled {
		return
	}
	p.ended(err)
}

func (p *Protector) apply(ctx context.Context, c change) error {
	// Without the UID a server-side apply would create a node that is gone.
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
		"name": c.node.Name, "uid": c.node.UID, "annotations": c.annotations(),
	}})
	if err != nil {
		return err
	}
	_, err = p.Client.CoreV1().Nodes().Patch(ctx, c.node.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // or the node is gone, or somebody has just decided otherwise: the watch brings it
	}
	return fmt.Errorf("annotating node %s: %w", c.node.Name, err)
}

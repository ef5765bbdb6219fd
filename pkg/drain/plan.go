package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Plan says what becomes of the pods of the nodes.
type Plan struct {
	// Answer is the server's plan. Go are those of its pods that have to go.
	Answer *reserver.DrainPlanAnswer
	Go     []*Pod
}

// Pod is a pod that has to go.
type Pod struct {
	*reserver.DrainPod
	// Object is the API server's.
	Object *v1.Pod
}

// String names the pod.
func (p *Pod) String() string { return p.Namespace + "/" + p.Pod }

// owner is what controls pods. One that is not known may make others or not.
type owner struct {
	namespace, kind, name string
	unknown               bool
}

// String names an owner.
func (o owner) String() string { return fmt.Sprintf("%s %s/%s", o.kind, o.namespace, o.name) }

// owner is what the places of a pod are kept for: of a Deployment's pod the Deployment.
func (p *Pod) owner() owner { return owner{p.Namespace, p.OwnerKind, p.OwnerName, p.Unmanaged} }

// maker is what makes another pod for one: of a Deployment's pod the ReplicaSet.
func (p *Pod) maker() owner {
	by := metav1.GetControllerOf(p.Object)
	return owner{p.Namespace, by.Kind, by.Name, p.Unmanaged}
}

// needsPlace reports whether a pod that is made for it will need a place. Nothing is made for a bare pod.
func (p *Pod) needsPlace() bool { return p.Action == reserver.DrainMove && p.OwnerKind != "" }

// UnplacedError says that more pods have no place than may be.
type UnplacedError struct{ Plan *Plan }

// Error names the pods.
func (e *UnplacedError) Error() string {
	var names []string
	for _, pod := range e.Plan.unplaced() {
		names = append(names, pod.String())
	}
	const most = 5
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return fmt.Sprintf("there is no place for %d pods: %s%s", len(e.Plan.unplaced()), strings.Join(names, ", "), more)
}

// Check returns an *UnplacedError where more pods have no place than may be.
func (p *Plan) Check(allowed int) error {
	if len(p.unplaced()) > allowed {
		return &UnplacedError{p}
	}
	return nil
}

func (p *Plan) unplaced() []*Pod {
	return slices.DeleteFunc(slices.Clone(p.Go), func(pod *Pod) bool { return !pod.needsPlace() || pod.To != "" })
}

// keptOnly is the plan without the pods that need a place and have none that is kept.
func (p *Plan) keptOnly() *Plan {
	return &Plan{Answer: p.Answer, Go: slices.DeleteFunc(slices.Clone(p.Go), func(pod *Pod) bool {
		return pod.needsPlace() && pod.Slot == ""
	})}
}

// Plan asks which pods have to go, and where. It changes nothing. Pods that kubectl drain would not evict without a
// flag are an error here, too, and so are those of kinds that are not known to make others.
func (d *Drain) Plan(ctx context.Context) (*Plan, error) {
	const attempts = 3 // pods come and go
	for attempt := 1; ; attempt++ {
		plan := &Plan{}
		var err error
		if plan.Answer, err = d.Server.PlanDrain(ctx, &reserver.DrainPlanRequest{
			Nodes: d.Nodes, Pods: d.Pods, SkipNamespaces: d.SkipNamespaces, Drain: d.name,
		}); err != nil {
			return nil, err
		}
		listed, err := d.listed(ctx)
		if err != nil {
			return nil, err
		}
		for i := range plan.Answer.Pods {
			planned := &plan.Answer.Pods[i]
			if pod := listed[planned.UID]; pod != nil {
				plan.Go = append(plan.Go, &Pod{planned, pod})
				delete(listed, planned.UID)
			}
		}
		switch {
		case len(listed) == 0:
			return plan, d.refuse(plan)
		case attempt == attempts:
			return nil, fmt.Errorf("%d pods have come to the nodes while they were looked at: run it again", len(listed))
		}
	}
}

// listed returns the pods that kubectl drain would evict, by UID.
func (d *Drain) listed(ctx context.Context) (map[string]*v1.Pod, error) {
	pods, errs := map[string]*v1.Pod{}, []error(nil)
	for _, node := range d.Nodes {
		list, refused := d.helper(ctx).GetPodsForDeletion(node)
		if errs = append(errs, refused...); list == nil {
			continue
		}
		found := list.Pods()
		for i := range found {
			pods[string(found[i].UID)] = &found[i]
		}
	}
	return pods, errors.Join(errs...)
}

// refuse returns an error for pods that are only evicted by force: that nothing is known to make again, or whose files
// are lost. These rules are kubectl drain's; its own filters would apply them to namespaces that are skipped, too.
func (d *Drain) refuse(plan *Plan) error {
	var errs []error
	refuse := func(pod *Pod, why, flag string) {
		errs = append(errs, fmt.Errorf("pod %s: %s (use %s to evict it)", pod, why, flag))
	}
	for _, pod := range plan.Go {
		hasFiles := slices.ContainsFunc(pod.Object.Spec.Volumes, func(v v1.Volume) bool { return v.EmptyDir != nil })
		switch {
		case pod.Action == reserver.DrainEnd:
		case pod.Action == reserver.DrainStay && !d.Force: // kubectl drain looks for the DaemonSet, too
			refuse(pod, "its DaemonSet is gone, so no other pod is made for it", "--force")
		case pod.Unmanaged && !d.Force:
			refuse(pod, strings.Join(slices.DeleteFunc(append(pod.Warnings, pod.Why),
				func(text string) bool { return text == "" }), "; "), "--force")
		case hasFiles && !d.DeleteEmptyDirData:
			refuse(pod, "what is in its emptyDir is lost", "--delete-emptydir-data")
		}
	}
	return errors.Join(errs...)
}

package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

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

// owner is what controls pods.
type owner struct{ namespace, kind, name string }

func (p *Pod) owner() owner { return owner{p.Namespace, p.OwnerKind, p.OwnerName} }

// needsPlace reports whether a pod that is made for it will need a place. Nothing is made for a bare pod.
func (p *Pod) needsPlace() bool { return p.Action == reserver.DrainMove && p.OwnerKind != "" }

// UnplacedError says that more pods have no place than may be.
type UnplacedError struct{ Plan *Plan }

// Error names the pods.
func (e *UnplacedError) Error() string {
	var names []string
	for _, pod := range e.Plan.unplaced() {
		names = append(names, pod.Namespace+"/"+pod.Pod)
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

// hasPlaces reports whether pods can go all the same.
func (p *Plan) hasPlaces() bool {
	return slices.ContainsFunc(p.Go, func(pod *Pod) bool { return pod.Slot != "" })
}

// Plan asks which pods have to go, and where. It changes nothing. Pods that kubectl drain would not evict without a
// flag are an error here, too, and so are those of kinds that are not known to make others.
func (d *Drain) Plan(ctx context.Context) (*Plan, error) {
	listed, errs := map[string]*v1.Pod{}, []error(nil)
	for _, node := range d.Nodes {
		list, refused := d.helper(ctx).GetPodsForDeletion(node)
		if errs = append(errs, refused...); list == nil {
			continue
		}
		pods := list.Pods()
		for i := range pods {
			listed[string(pods[i].UID)] = &pods[i]
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	answer, err := d.Server.PlanDrain(ctx, &reserver.DrainPlanRequest{
		Nodes: d.Nodes, SkipNamespaces: d.SkipNamespaces, Drain: d.name,
	})
	if err != nil {
		return nil, err
	}
	plan := &Plan{Answer: answer}
	for i := range answer.Pods {
		planned := &answer.Pods[i]
		// What came since is in the next plan.
		if pod := listed[planned.UID]; pod != nil && planned.Action != reserver.DrainStay {
			plan.Go = append(plan.Go, &Pod{planned, pod})
		}
	}
	return plan, d.refuse(plan)
}

// refuse returns an error for pods that nothing is known to make again, unless they are to go by force.
func (d *Drain) refuse(plan *Plan) error {
	var errs []error
	for _, pod := range plan.Go {
		if pod.Unmanaged && !d.Force {
			errs = append(errs, fmt.Errorf("pod %s/%s: %s (use --force to evict it)", pod.Namespace,
				pod.Pod, strings.Join(append(pod.Warnings, pod.Why), "; ")))
		}
	}
	return errors.Join(errs...)
}

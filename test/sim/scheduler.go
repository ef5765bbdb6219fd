package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// scheduler asks the servers as extenders, as kube-scheduler does, on a snapshot that is old: filter, choose, bind.
type scheduler struct {
	cluster *Cluster
	name    string
	random  *rand.Rand
	pods    []v1.Pod // its own without a node, as it knows them
	nodes   []string
}

// maxPause is the longest that a scheduler waits, in milliseconds, after it could bind nothing.
const maxPause = 1000

func (s *scheduler) run(ctx context.Context) {
	pause := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(milliseconds(s.random, 300+pause)):
		}
		if len(s.pods) == 0 || s.random.IntN(5) == 0 {
			s.look(ctx)
		}
		if len(s.pods) == 0 {
			continue
		}
		s.cluster.steps.Add(1)
		chosen := s.random.IntN(len(s.pods))
		pause = min(2*pause+10, maxPause)
		if s.schedule(ctx, &s.pods[chosen]) {
			pause = 0
			if s.random.IntN(5) > 0 { // else it is asked for again
				s.pods = slices.Delete(s.pods, chosen, chosen+1)
			}
		}
	}
}

// look takes a new snapshot.
func (s *scheduler) look(ctx context.Context) {
	core := s.cluster.admin.CoreV1()
	pods, err := core.Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=,spec.schedulerName=" + s.name, ResourceVersion: "0",
	})
	if err != nil {
		return // ctx has ended
	}
	nodes, err := core.Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return
	}
	s.pods, s.nodes = pods.Items, nil
	for i := range nodes.Items {
		if !nodes.Items[i].Spec.Unschedulable {
			s.nodes = append(s.nodes, nodes.Items[i].Name)
		}
	}
}

// schedule tries to bind a pod, and reports whether it is. It asks any server, which passes on what it does not decide.
func (s *scheduler) schedule(ctx context.Context, pod *v1.Pod) bool {
	to := s.cluster.processes()
	if len(to) == 0 || len(s.nodes) == 0 {
		return false
	}
	server := to[s.random.IntN(len(to))]
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	nodes := s.nodes
	if s.random.IntN(10) > 0 { // some are bound where nobody has looked
		var filtered extenderv1.ExtenderFilterResult
		_, err := server.ask(ctx, s.name, "POST", "/filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}, &filtered)
		if err != nil || filtered.NodeNames == nil || len(*filtered.NodeNames) == 0 {
			return false
		}
		nodes = *filtered.NodeNames
	}
	node := nodes[s.random.IntN(len(nodes))]
	asked := s.cluster.judge.asked(pod.UID)
	var bound reserver.BindAnswer
	_, err := server.ask(ctx, s.name, "POST", "/bind", extenderv1.ExtenderBindingArgs{
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
	}, &bound)
	switch {
	case err != nil:
		s.cluster.note(s.name, "asks %s to bind %s to %s, and does not know: %v", server.name, pod.Name, node, err)
		s.cluster.judge.lost(pod.UID)
	case bound.Error != "":
		s.cluster.note(s.name, "asks %s to bind %s to %s: %s", server.name, pod.Name, node, bound.Error)
		s.cluster.judge.refused(pod, asked, &bound)
	default:
		s.cluster.note(s.name, "has %s bound to %s by %s", pod.Name, node, server.name)
		s.cluster.judge.granted(pod, node)
		return true
	}
	return false
}

// askTimeout is how long a scheduler waits for an answer, as in the files of scheduler-config.
const askTimeout = 10 * time.Second

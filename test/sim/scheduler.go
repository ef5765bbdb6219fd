package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// scheduler asks the servers as extenders, as kube-scheduler does, on a snapshot that is old: filter, choose, bind.
type scheduler struct {
	cluster *Cluster
	name    string
	random  *rand.Rand
	// alone is set where it knows nothing of the servers, and binds by itself.
	alone kubernetes.Interface
	pods  []v1.Pod // its own without a node, as it knows them
	nodes []string
}

// maxPause is the longest that a scheduler waits, in milliseconds, after it could bind nothing.
const maxPause = 1000

func (s *scheduler) run(ctx context.Context) {
	pause := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(milliseconds(s.random, (300+pause)*s.cluster.pace())):
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

// schedule tries to bind a pod, and reports whether it is.
func (s *scheduler) schedule(ctx context.Context, pod *v1.Pod) bool {
	if len(s.nodes) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if s.alone != nil {
		return s.bindAlone(ctx, pod, s.nodes[s.random.IntN(len(s.nodes))])
	}
	server := s.cluster.anyProcess(s.random)
	if server == nil {
		return false
	}
	nodes := s.nodes
	if s.random.IntN(10) > 0 { // some are bound where nobody has looked
		nodes = s.filter(ctx, server, pod)
	}
	return len(nodes) > 0 && s.bind(ctx, server, pod, nodes[s.random.IntN(len(nodes))])
}

// filter returns the nodes that a server takes for good.
func (s *scheduler) filter(ctx context.Context, server *process, pod *v1.Pod) []string {
	var filtered extenderv1.ExtenderFilterResult
	question := extenderv1.ExtenderArgs{Pod: pod, NodeNames: &s.nodes}
	err := server.ask(ctx, s.name, "POST", "/filter", question, &filtered)
	if err != nil || filtered.NodeNames == nil {
		return nil
	}
	return *filtered.NodeNames
}

// bind asks a server to bind a pod. It may be any, which passes on what it does not decide.
func (s *scheduler) bind(ctx context.Context, server *process, pod *v1.Pod, node string) bool {
	asked := s.cluster.judge.asked(pod, node)
	var bound reserver.BindAnswer
	err := server.ask(ctx, s.name, "POST", "/bind", extenderv1.ExtenderBindingArgs{
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
	}, &bound)
	switch {
	case err != nil:
		s.cluster.note(s.name, "asks %s to bind %s to %s, and does not know: %v", server.name, pod.Name, node, err)
		s.cluster.judge.lost(pod.UID)
	case bound.Error != "":
		s.cluster.note(s.name, "asks %s to bind %s to %s: %s", server.name, pod.Name, node, bound.Error)
		s.cluster.judge.refused(pod, asked, gates.Outcome(bound.Outcome), bound.Error)
		if strings.Contains(bound.Error, "too little") {
			s.cluster.judge.refusedKept(pod, node, bound.Error)
		}
	default:
		s.cluster.note(s.name, "has %s bound to %s by %s", pod.Name, node, server.name)
		s.cluster.judge.granted(pod, node)
		return true
	}
	return false
}

// bindAlone binds a pod as those do who do not know the servers: the API server asks one.
func (s *scheduler) bindAlone(ctx context.Context, pod *v1.Pod, node string) bool {
	asked := s.cluster.judge.asked(pod, node)
	err := s.alone.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	var said apierrors.APIStatus
	switch {
	case err == nil:
		s.cluster.note(s.name, "binds %s to %s", pod.Name, node)
		s.cluster.judge.granted(pod, node)
		return true
	case errors.As(err, &said):
		s.cluster.note(s.name, "does not bind %s to %s: %v", pod.Name, node, err)
		s.cluster.judge.refused(pod, asked, "", err.Error())
	default:
		s.cluster.note(s.name, "does not know whether %s is bound to %s: %v", pod.Name, node, err)
		s.cluster.judge.lost(pod.UID)
	}
	return false
}

// askTimeout is how long a scheduler waits for an answer, as in the files of scheduler-config.
const askTimeout = 10 * time.Second

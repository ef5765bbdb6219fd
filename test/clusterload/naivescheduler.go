package clusterload

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NaiveScheduler binds the pods of its name to any node, looks at nothing, and tries another node
// where that failed: a scheduler that has never heard of capacity, nor of GlobalReserve.
type NaiveScheduler struct {
	Client    kubernetes.Interface
	Name      string // its pods' schedulerName
	Namespace string // of its pods
	Nodes     []string

	dice *rand.Rand // of Run

	mu      sync.Mutex // guards what follows
	refused int
	changed int
}

// Run schedules until ctx ends.
func (s *NaiveScheduler) Run(ctx context.Context) {
	seed := fnv.New64()
	_, _ = seed.Write([]byte(s.Name))
	s.dice = rand.New(rand.NewPCG(seed.Sum64(), 0))
	for ctx.Err() == nil {
		pods, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=,spec.schedulerName=" + s.Name,
		})
		if err == nil {
			for i := range pods.Items {
				s.schedule(ctx, &pods.Items[i])
			}
		}
		pause(ctx)
	}
}

func (s *NaiveScheduler) schedule(ctx context.Context, p *corev1.Pod) {
	for _, i := range s.dice.Perm(len(s.Nodes)) {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: s.Nodes[i]},
		}
		err := s.Client.CoreV1().Pods(s.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
		s.note(err)
		if err == nil || !apierrors.IsConflict(err) {
			return
		}
	}
}

func (s *NaiveScheduler) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || !apierrors.IsConflict(err):
	case strings.Contains(err.Error(), "denied the request"):
		s.refused++
	default:
		s.changed++
	}
}

// Refused returns how many of its bindings admission has refused, and how many came too late,
// because the pod had changed.
func (s *NaiveScheduler) Refused() (refused, tooLate int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused, s.changed
}

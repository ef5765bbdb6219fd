package large

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

const (
	// underWay is how many pods one scheduler binds at once.
	underWay = 8
	// offered is how many nodes that a scheduler finds fitting it asks about: the first in an order that is the same for
	// all, so that all of them want the same nodes.
	offered = 100
	// staleFor is how old a scheduler's view of what the others have bound becomes.
	staleFor = time.Second
)

// room is the milli-CPU that nodes have left.
type room struct {
	mu   sync.Mutex
	left []int64
}

func (r *room) take(node int, milli int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[node] -= milli
}

func (r *room) copy() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.left)
}

// scheduler is a model of one: it has a view of the nodes that others have changed since, asks which of the nodes of
// its choice the server allows, and has the pod bound to one of them.
type scheduler struct {
	server string
	client *http.Client
	nodes  []string
	index  map[string]int // of nodes
	truth  *room

	mu   sync.Mutex // guards what follows
	dice *rand.Rand
	view []int64
	seen time.Time

	figures
}

// figures are what one scheduler has seen.
type figures struct {
	filters, binds []time.Duration // those that ended well
	asked, unfit   int             // nodes offered, and those that the server had no room on
	bound, refused int             // binds
	noNode         int             // filter calls that left no node
}

// run binds all pods that come.
func (s *scheduler) run(ctx context.Context, pods <-chan *corev1.Pod) error {
	group, ctx := errgroup.WithContext(ctx)
	for range underWay {
		group.Go(func() error {
			for pod := range pods {
				if err := s.schedule(ctx, pod); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// schedule tries until the pod is bound.
func (s *scheduler) schedule(ctx context.Context, pod *corev1.Pod) error {
	milli := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	for ctx.Err() == nil {
		names := s.choose(milli)
		args := &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}
		answer := &extenderv1.ExtenderFilterResult{}
		began := time.Now()
		if err := s.ask(ctx, "/filter", args, answer); err != nil || answer.Error != "" {
			return fmt.Errorf("filter: %w %s", err, answer.Error)
		}
		node := s.filtered(names, answer, time.Since(began))
		if node == "" {
			continue
		}
		result := &extenderv1.ExtenderBindingResult{}
		began = time.Now()
		err := s.ask(ctx, "/bind", &extenderv1.ExtenderBindingArgs{
			PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
		}, result)
		if err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		bound, err := s.answered(node, milli, result, time.Since(began))
		if bound || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// choose returns the first nodes that have enough room, as far as the scheduler knows.
func (s *scheduler) choose(milli int64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.seen) > staleFor {
		s.view, s.seen = s.truth.copy(), time.Now()
	}
	var names []string
	for i, left := range s.view {
		if left >= milli {
			if names = append(names, s.nodes[i]); len(names) == offered {
				break
			}
		}
	}
	return names
}

// filtered notes an answer, and picks a node of those that are left, "" where none is.
func (s *scheduler) filtered(names []string, answer *extenderv1.ExtenderFilterResult, took time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = append(s.filters, took)
	s.asked += len(names)
	s.unfit += len(answer.FailedNodes)
	for name := range answer.FailedNodes {
		s.view[s.index[name]] = 0
	}
	if answer.NodeNames == nil || len(*answer.NodeNames) == 0 {
		s.noNode++
		return ""
	}
	return (*answer.NodeNames)[s.dice.IntN(len(*answer.NodeNames))]
}

// answered notes how a bind went. It is an error that it was refused for anything but that the node is full.
func (s *scheduler) answered(node string, milli int64, result *extenderv1.ExtenderBindingResult,
	took time.Duration,
) (bound bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.Contains(result.Error, "too little cpu"):
		s.refused++
		s.view[s.index[node]] = 0
		return false, nil
	case result.Error != "":
		return false, errors.New(result.Error)
	}
	s.bound++
	s.binds = append(s.binds, took)
	s.view[s.index[node]] -= milli
	s.truth.take(s.index[node], milli)
	return true, nil
}

func (s *scheduler) ask(ctx context.Context, path string, args, answer any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s %w", response.StatusCode, body, err)
	}
	return json.Unmarshal(body, answer)
}

// newPod returns a pod as Deployments make them.
func newPod(prefix string, i int, milli int64) *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP},
	}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: prefix + "-" + strconv.Itoa(i),
			Labels: map[string]string{"app.kubernetes.io/name": prefix, "pod-template-hash": "6b8d7c9f54"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: prefix, UID: "8c1f0a52-3f0e-4c43-9d1b-1234567890ab",
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.invalid/not-pulled:1.2.3", ReadinessProbe: probe, LivenessProbe: probe,
			Env: []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "UPSTREAM", Value: "http://upstream:8080"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(milli, resource.DecimalSI),
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			}},
		}}},
	}
}

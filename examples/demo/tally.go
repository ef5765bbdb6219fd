package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// schedulerNames are those of the schedulers; recordings and pages number them by their place here.
var schedulerNames = []string{defaultScheduler, secondScheduler, gangScheduler}

// recording is what happened in the runs, for the replay and the picture.
type recording struct {
	Nodes      int      `json:"nodes"`
	NodeCPUs   int      `json:"nodeCPUs"`
	PodCPUs    int      `json:"podCPUs"`
	Schedulers []string `json:"schedulers"`
	Runs       []run    `json:"runs"`
}

// run is one run and what became of it.
type run struct {
	Result result `json:"result"`
	Binds  []bind `json:"binds"`
	// Conflicts are the binds for whose pod an observing server found no capacity.
	Conflicts []bind `json:"conflicts,omitempty"`
}

// bind says when a pod got its node, in milliseconds since the schedulers were let go.
type bind struct {
	At        int64  `json:"ms"`
	Pod       string `json:"pod"`
	Scheduler int    `json:"scheduler"`
	Node      int    `json:"node"`
}

func newRecording() recording {
	return recording{Nodes: nodeCount, NodeCPUs: nodeCPUs, PodCPUs: podCPUs, Schedulers: schedulerNames}
}

// tally receives every event of a pod: it knows which pod is on which node, and records the binds of a run.
type tally struct {
	mu    sync.Mutex // guards what follows
	pods  map[types.UID]*tallied
	seen  int // how many binds there were
	began time.Time
	binds []bind // since began
}

// tallied is a pod.
type tallied struct {
	namespace, name string
	scheduler       int
	node            int // -1: it waits
	order           int // among all binds
}

func newTally() *tally { return &tally{pods: map[types.UID]*tallied{}} }

// look takes in one event.
func (t *tally) look(pod *corev1.Pod, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone {
		delete(t.pods, pod.UID)
		return
	}
	known := t.pods[pod.UID]
	if known == nil {
		known = &tallied{
			namespace: pod.Namespace, name: pod.Name, node: -1,
			scheduler: slices.Index(schedulerNames, pod.Spec.SchedulerName),
		}
		t.pods[pod.UID] = known
	}
	if pod.Spec.NodeName == "" || known.node >= 0 {
		return
	}
	node, ours := nodeNumber(pod.Spec.NodeName)
	if !ours {
		return // a node that a visitor has made
	}
	t.seen++
	known.node, known.order = node, t.seen
	if known.scheduler >= 0 {
		t.binds = append(t.binds, bind{
			At: time.Since(t.began).Milliseconds(), Pod: pod.Name, Scheduler: known.scheduler, Node: node,
		})
	}
}

// nodeNumber is the number in the name of one of the demo's nodes.
func nodeNumber(name string) (int, bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "node-"))
	return number, err == nil && number >= 0 && number < nodeCount
}

// record begins a new record.
func (t *tally) record(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.binds = began, nil
}

// recorded returns the binds since record.
func (t *tally) recorded() []bind {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.binds)
}

// now returns the schedulers of each node's pods, in the order of their binds, and how many pods wait.
func (t *tally) now() (nodes [][]int, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes = make([][]int, nodeCount)
	for i := range nodes {
		nodes[i] = []int{}
	}
	waiting = len(t.pods)
	for _, p := range t.boundLocked() {
		nodes[p.node] = append(nodes[p.node], p.scheduler)
		waiting--
	}
	return nodes, waiting
}

// bound are the pods that have a node, in the order in which they got it.
func (t *tally) bound() []tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boundLocked()
}

func (t *tally) boundLocked() []tallied {
	all := make([]tallied, 0, len(t.pods))
	for _, p := range t.pods {
		if p.node >= 0 {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(x, y tallied) int { return cmp.Compare(x.order, y.order) })
	return all
}

// overcommitted counts the nodes with more pods than fit.
func overcommitted(nodes [][]int) int {
	count := 0
	for _, pods := range nodes {
		if len(pods)*podCPUs > nodeCPUs {
			count++
		}
	}
	return count
}

// nodesAt returns the nodes of a run after so many milliseconds, as tally.now does.
func (r run) nodesAt(millis int64) [][]int {
	nodes := make([][]int, nodeCount)
	for _, b := range r.Binds {
		if b.At <= millis {
			nodes[b.Node] = append(nodes[b.Node], b.Scheduler)
		}
	}
	return nodes
}

// save writes the recording into a file, each bind into a line of its own.
func (r recording) save(file string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	content = bytes.ReplaceAll(content, []byte(`{"ms"`), []byte("\n"+`{"ms"`))
	return os.WriteFile(file, append(content, '\n'), 0o644)
}

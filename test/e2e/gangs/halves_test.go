//go:build e2e || chaos

package gangs

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// halves notes, from every event of a pod, for how long gangs have some members bound and yet too few of them, and no
// more of them are bound: as long as members are being bound, the deadline is put off.
type halves struct {
	mu    sync.Mutex // guards what follows
	gangs map[string]*halfGang
}

type halfGang struct {
	minimum int
	bound   map[types.UID]bool
	most    int           // members that were bound at once
	since   time.Time     // when it became half, or another member was bound; zero while it is not half
	longest time.Duration // that it was half without another member, once that was over
}

// look is a clusterload.PodFunc.
func (h *halves) look(pod *corev1.Pod, gone bool) {
	name := pod.Annotations[gangAnnotation]
	minimum, err := strconv.Atoi(pod.Annotations[gangMinAnnotation])
	if name == "" || err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.gang(pod.Namespace + "/" + name)
	g.minimum = minimum
	before := len(g.bound)
	delete(g.bound, pod.UID)
	if pod.Spec.NodeName != "" && !gone {
		g.bound[pod.UID] = true
	}
	g.most = max(g.most, len(g.bound))
	half := len(g.bound) > 0 && len(g.bound) < g.minimum
	switch {
	case half && g.since.IsZero():
		g.since = time.Now()
	case !g.since.IsZero() && len(g.bound) > before:
		g.longest, g.since = max(g.longest, time.Since(g.since)), time.Now()
	}
	if !half {
		g.since = time.Time{}
	}
}

func (h *halves) gang(key string) *halfGang {
	if h.gangs == nil {
		h.gangs = map[string]*halfGang{}
	}
	if h.gangs[key] == nil {
		h.gangs[key] = &halfGang{bound: map[types.UID]bool{}}
	}
	return h.gangs[key]
}

// of is what is known of a gang: its members that are bound, the most that ever were at once, and the longest time it
// was half without another member being bound, until now if it is.
func (h *halves) of(key string) (bound, most int, longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.gang(key)
	if longest = g.longest; !g.since.IsZero() {
		longest = max(longest, time.Since(g.since))
	}
	return len(g.bound), g.most, longest
}

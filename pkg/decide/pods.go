package decide

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// maxLag is how long a decision waits for the watch of pods. It is usually some
	// milliseconds behind a scheduler at most.
	maxLag = 100 * time.Millisecond
	// lagPause is for how long no decision waits after one wait was in vain: the watch is
	// far behind, or a caller sends versions that do not exist.
	lagPause = time.Second
	// knownPods is how many pods are remembered that the watch has not brought.
	knownPods = 4096
)

// pods finds pods as the API server has them. A copy of a pod in a request may say
// that the pod exists, and at which version; nothing else of it counts.
//
// A scheduler's watch is often ahead of ours. A caller that sends a pod which is newer
// than all that our watch has brought may also have seen another pod go. So a decision
// waits a moment for the watch, and reads the pod live where that was in vain.
type pods struct {
	o *Options

	pausedUntil atomic.Int64 // in nanoseconds of the clock

	mu    sync.Mutex // guards the read and write of an entry of known
	known *lru.Cache // by UID: sighting
}

// sighting is what is known of a pod besides what the watch has brought.
type sighting struct {
	version uint64       // the newest one a request has named
	live    *cluster.Pod // as it was read last; nil if it never was
}

// find returns a pod as the API server has it, in the state of a version or a newer one as far as there is such a
// state. version is 0 where the caller knows none. Its errors are an *Error and an *UncountableError.
func (p *pods) find(ctx context.Context, ref ledger.PodRef, version uint64) (*cluster.Pod, error) {
	if ref.UID != "" {
		version = p.named(ref.UID, version)
	}
	if info, err := p.brought(ref, version); info != nil || err != nil {
		return info, err
	}
	if p.await(ctx, version) {
		if info, err := p.brought(ref, version); info != nil || err != nil {
			return info, err
		}
	}
	return p.read(ctx, ref, version)
}

// named records the version of a pod that a request names, and returns the newest one named so far.
func (p *pods) named(uid types.UID, version uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, _ := p.known.Get(uid)
	s, _ := seen.(sighting)
	if version <= s.version {
		return s.version
	}
	s.version = version
	p.known.Add(uid, s)
	return version
}

// brought returns the pod as the watch has brought it, or as it was read before;
// nil where that is another pod, or older than version.
func (p *pods) brought(ref ledger.PodRef, version uint64) (*cluster.Pod, error) {
	if info, ok := p.o.Pods.Pod(ref.Namespace, ref.Name); ok && isOf(info, ref) && info.ResourceVersion >= version {
		if err := p.o.Pods.PodError(ref.Namespace, ref.Name); err != nil {
			return nil, &UncountableError{Cause: err}
		}
		return info, nil
	}
	seen, _ := p.known.Get(ref.UID)
	if s, ok := seen.(sighting); ok && s.live != nil && s.live.Ref == ref && version != 0 &&
		s.live.ResourceVersion >= version {
		return s.live, nil
	}
	return nil, nil
}

// isOf reports whether a pod that the watch has brought is the one that a request names. Where the request names no
// UID, a pod that cannot be bound any more does not count: it may be a former pod of the same name.
func isOf(info *cluster.Pod, ref ledger.PodRef) bool {
	if ref.UID == "" {
		return info.Node == "" && !info.Finished && !info.Deleting
	}
	return info.Ref.UID == ref.UID
}

// exists reports whether there is a pod of a name. Where the watch shows one the API server is asked, as it may be gone
// already. Where the watch shows none the API server is asked only while another pod of the name is being created.
// Otherwise it refuses a second pod of the name itself.
func (p *pods) exists(ctx context.Context, ref ledger.PodRef, created bool) (bool, error) {
	if _, ok := p.o.Pods.Pod(ref.Namespace, ref.Name); !ok && !created {
		return false, nil
	}
	_, err := p.read(ctx, ledger.PodRef{Namespace: ref.Namespace, Name: ref.Name}, 0)
	switch {
	case gates.IsPodGone(err):
		return false, nil
	case errors.As(err, new(*UncountableError)):
		return true, nil
	default:
		return err == nil, err
	}
}

// await waits for the watch to reach a version, not long, and reports whether it is worth looking again.
func (p *pods) await(ctx context.Context, version uint64) bool {
	if version == 0 || p.o.Ledger.Clock.Now().UnixNano() < p.pausedUntil.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxLag)
	defer cancel()
	if p.o.Pods.WaitForPods(ctx, version) != nil {
		p.pausedUntil.Store(p.o.Ledger.Clock.Now().Add(lagPause).UnixNano())
		return false
	}
	return true
}

// read reads a pod live.
func (p *pods) read(ctx context.Context, ref ledger.PodRef, version uint64) (*cluster.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout(p.o.BindTimeout))
	defer cancel()
	pod, err := p.o.API.Get(ctx, ref.Namespace, ref.Name)
	switch {
	case err != nil && isNoPod(err):
		return nil, &gates.Error{Outcome: gates.PodGone, Pod: ref}
	case err != nil:
		return nil, &gates.Error{Outcome: gates.Failed, Pod: ref, Cause: err}
	case ref.UID != "" && pod.UID != ref.UID:
		return nil, &gates.Error{Outcome: gates.UIDMismatch, Pod: ref}
	}
	info, err := p.o.Question.Reader.NewPod(pod)
	if err != nil {
		return nil, &UncountableError{Cause: err}
	}
	p.observe(info)
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, _ := p.known.Get(info.Ref.UID)
	s, _ := seen.(sighting)
	if s.live == nil || s.live.Ref != info.Ref || s.live.ResourceVersion <= info.ResourceVersion {
		s.live = info
	}
	// A version that the API server does not have was made up. It must not make every
	// later look at the pod a live read.
	if s.version <= version {
		s.version = info.ResourceVersion
	}
	p.known.Add(info.Ref.UID, s)
	return info, nil
}

// observe passes to the ledger a pod that was found before the watch has brought it. If the pod is bound, its capacity
// must not be granted to others in the meantime.
func (p *pods) observe(pod *cluster.Pod) {
	if pod.Bound() {
		p.o.Ledger.ObservePod(p.o.Question.Observation(pod))
	} else if !pod.Finished {
		cluster.ObserveUnbound(p.o.Ledger.Observer(), p.o.Log, pod)
	}
}

// findToBind finds a pod that is about to be bound to a node. Where the pod has ResourceClaims, or the node leaves
// something to DRA, the pod's scheduler has written into its status what it allocated, a moment ago, and gates may have
// gone a moment ago: the watch may not have brought that.
func (a *Arbiter) findToBind(
	ctx context.Context, ref ledger.PodRef, version uint64, node string,
) (*cluster.Pod, error) {
	pod, err := a.pods.find(ctx, ref, version)
	if err == nil && pod.Node == "" && (pod.Gated || pod.HasClaims || a.o.Ledger.LeavesToDRA(node, pod.Request)) {
		return a.pods.read(ctx, ref, version)
	}
	return pod, err
}

// Watched returns the pod of a name as the watch has brought it. It returns nil where the
// watch has brought none, or one of another UID. Then either the watch or the caller is
// behind. The ledger, which remembers UIDs that are gone, decides. The error is an
// *UncountableError.
func (a *Arbiter) Watched(ref ledger.PodRef) (*cluster.Pod, error) {
	info, ok := a.o.Pods.Pod(ref.Namespace, ref.Name)
	if !ok || (ref.UID != "" && ref.UID != info.Ref.UID) {
		return nil, nil
	}
	if err := a.o.Pods.PodError(ref.Namespace, ref.Name); err != nil {
		return nil, &UncountableError{Cause: err}
	}
	return info, nil
}

// ReadPod reads a pod live. Its errors are a *gates.Error and an *UncountableError.
func (a *Arbiter) ReadPod(ctx context.Context, ref ledger.PodRef) (*cluster.Pod, error) {
	return a.pods.read(ctx, ref, 0)
}

// ObservePodsToCome looks at pods for which something was reserved because they did not exist. The watch may have
// brought one of them meanwhile, and it passes it to the ledger. The watch itself passes pods that come later to the
// ledger.
func (a *Arbiter) ObservePodsToCome(placements []ledger.Placement) {
	for i := range placements {
		p := &placements[i]
		info, ok := a.o.Pods.Pod(p.Pod.Namespace, p.Pod.Name)
		// else what is known may be old
		if ok && p.PodToCome && info.Node == "" && (p.Pod.UID == "" || p.Pod.UID == info.Ref.UID) {
			a.pods.observe(info)
		}
	}
}

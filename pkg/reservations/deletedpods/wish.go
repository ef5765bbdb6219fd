package deletedpods

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// kindDeployment is the one kind of controller whose own annotations count.
const kindDeployment = "Deployment"

// wish is what the annotations ask for a pod that is gone.
type wish struct {
	// ttls are the texts of the ttl annotations, the one that counts first.
	ttls  []string
	godel bool // asked for in the words of the Gödel scheduler
}

// wishOf says whether the capacity of a pod is to be kept. deployment has the marks
// of the pod's Deployment, nil where it has none.
func wishOf(pod *cluster.Pod, deployment *cluster.Annotations) (w wish, keep bool) {
	if pod.Preempted {
		return wish{}, false
	}
	for _, marks := range []*cluster.Annotations{pod.Annotations, deployment} {
		if marks == nil {
			continue
		}
		if marks.Keep == cluster.KeepNo && !keep {
			return wish{}, false
		}
		keep = keep || marks.Keep == cluster.KeepYes
		if marks.TTL != "" {
			w.ttls = append(w.ttls, marks.TTL)
		}
		w.godel = w.godel || marks.Godel
	}
	return w, keep
}

// maxQuoted bounds what a message quotes.
const maxQuoted = 64

// parseTTL reads a ttl annotation: whole seconds, or a Go duration.
func parseTTL(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	ttl, err := time.ParseDuration(text)
	if seconds, notNumber := strconv.ParseInt(text, 10, 64); notNumber == nil {
		const most = int64(v1alpha1.MaxTTL / time.Second)
		ttl, err = time.Duration(min(max(seconds, -1), most+1))*time.Second, nil
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration: give whole seconds, such as 90, or a duration, such as 90s or 1h30m",
			informer.Clip(text, maxQuoted))
	case ttl <= 0 || ttl > v1alpha1.MaxTTL:
		return 0, fmt.Errorf("%q is out of range: give more than 0 and at most %s", informer.Clip(text, maxQuoted),
			v1alpha1.MaxTTL)
	default:
		return max(ttl.Round(time.Millisecond), time.Millisecond), nil
	}
}

// chooseTTL returns how long capacity is kept: what the first ttl asks that can be read and is allowed, else the
// default. complaints say what is wrong with those before it.
func (k *Keeper) chooseTTL(scheduler string, ttls []string) (ttl time.Duration, complaints []string) {
	for _, text := range ttls {
		asked, err := parseTTL(text)
		if err == nil {
			if ttl, err = k.Policy.DeletedPodTTL(scheduler, asked); err == nil {
				return ttl, complaints
			}
		}
		complaints = append(complaints, fmt.Sprintf("annotation %s: %s", v1alpha1.ReservationTTLAnnotation, err))
	}
	ttl, _ = k.Policy.DeletedPodTTL(scheduler, 0) // never refused, nor 0: flag and policy are validated
	return ttl, complaints
}

// consumersOf says who may use the capacity of a pod; nil means only a pod of its own name.
func consumersOf(pod *cluster.Pod) *v1alpha1.ConsumerSpec {
	if index := pod.Index(); index != "" {
		return &v1alpha1.ConsumerSpec{Index: index}
	}
	if pod.Controller == (cluster.Controller{}) {
		return nil
	}
	return &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{
		Kind: pod.Controller.Kind, Name: pod.Controller.Name,
	}}
}

// The longest name of an object, and how much of a UID distinguishes objects.
const (
	maxName   = 253
	uidSuffix = 8
)

// suffixed is the name of a Reservation where the pod's own is taken.
func suffixed(pod *cluster.Pod) string {
	uid := strings.ToLower(strings.ReplaceAll(string(pod.Ref.UID), "_", "-"))
	uid = uid[:min(len(uid), uidSuffix)]
	name := pod.Ref.Name[:min(len(pod.Ref.Name), maxName-uidSuffix-1)]
	return strings.TrimRight(name, ".-") + "-" + uid
}

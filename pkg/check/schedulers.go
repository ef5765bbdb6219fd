package check

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

const (
	// lastDay is how far back a check looks at pods.
	lastDay = 24 * time.Hour
	// page is how many pods are listed at once.
	page = 500
	// other is the scheduler in metrics under which a server counts those with too many names.
	other = "other"
)

// bound is what was seen of one scheduler's pods: how many were bound, and how many of them by a Binding with a term,
// which has passed the ledger.
type bound struct{ all, byLedger int }

// schedulers says which schedulers bind pods, and which of them ask.
func (v *view) schedulers(ctx context.Context) (lines []Line) {
	since := time.Now().Add(-lastDay)
	if v.term != nil && v.term.Spec.Since.After(since) {
		since = v.term.Spec.Since.Time // what the server counts begins there
	}
	of, err := v.boundSince(ctx, since)
	switch {
	case err != nil && len(of) > 0 && ctx.Err() != nil:
		lines = append(lines, bad("schedulers", Warning, "give a longer --request-timeout",
			"only some of the pods were looked at, as there are many"))
	case err != nil:
		return []Line{unseen("schedulers", err)}
	}
	switch {
	case v.leader == nil:
		return []Line{unseen("schedulers", errUnread)}
	case len(of) == 0:
		return []Line{ok("schedulers", "no pod was bound since %s", since.UTC().Format(time.DateTime))}
	}
	decided := v.leader.each("decisions_total", "scheduler", "verb", "bind", "reserve", "admission")
	bypassed := v.leader.each("bypassed_binds_total", "scheduler")
	for _, name := range slices.Sorted(maps.Keys(of)) {
		b, asked := of[name], decided[name]
		pods := count(b.all, "pod", "pods")
		switch {
		case b.byLedger == 0 && asked == 0 && decided[other] == 0:
			lines = append(lines, bad("schedulers", Fails, "put it behind the server (docs/schedulers.md), or turn admission on",
				"%s has bound %s since %s and never asked", name, pods, since.UTC().Format(time.DateTime)))
		case b.byLedger == 0 && asked == 0:
			lines = append(lines, bad("schedulers", Warning, "name it in the policy's schedulers: the server counts it then",
				"%s has bound %s; whether it asks is not known", name, pods))
		case bypassed[name] > 0:
			lines = append(lines, bad("schedulers", Warning,
				"the server's log names the pods: docs/runbooks/GlobalReserveBypassedBinds.md",
				"%s has bound %s, and %.0f were found bound without asking", name, pods, bypassed[name]))
		case asked == 0 && b.byLedger < b.all:
			lines = append(lines, bad("schedulers", Warning, "put it behind the server (docs/schedulers.md)",
				"%s has bound %s, %d of them by the ledger", name, pods, b.byLedger))
		default:
			lines = append(lines, ok("schedulers", "%s has bound %s, and asks", name, pods))
		}
	}
	if n := bypassed[other]; n > 0 {
		lines = append(lines, bad("schedulers", Warning, "name them in the policy's schedulers: the server tells them apart",
			"%.0f pods of others were found bound without asking", n))
	}
	return lines
}

// boundSince counts the pods that were bound since a moment, by their schedulers.
func (v *view) boundSince(ctx context.Context, since time.Time) (map[string]bound, error) {
	of := map[string]bound{}
	list := metav1.ListOptions{Limit: page, FieldSelector: "spec.nodeName!="}
	for {
		pods, err := v.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, list)
		if err != nil {
			return of, err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if _, static := pod.Annotations[v1.MirrorPodAnnotationKey]; static || boundAt(pod).Before(since) {
				continue
			}
			b := of[pod.Spec.SchedulerName]
			b.all++
			term, err := strconv.ParseInt(pod.Annotations[v1alpha1.TermAnnotation], 10, 64)
			if err == nil && term > 0 && (v.term == nil || term <= v.term.Spec.Term) {
				b.byLedger++
			}
			of[pod.Spec.SchedulerName] = b
		}
		if list.Continue = pods.Continue; list.Continue == "" {
			return of, nil
		}
	}
}

// boundAt is when a pod was bound or, where it does not say so, made.
func boundAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

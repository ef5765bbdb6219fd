package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// webhook is what a check needs of one webhook of either kind of configuration.
type webhook struct {
	name       string
	client     admissionregistrationv1.WebhookClientConfig
	policy     admissionregistrationv1.FailurePolicyType
	namespaces labels.Selector
	// some: it is asked about some objects alone, by their labels.
	some bool
}

// suffix is that of the names of our webhooks, in all manifests.
const suffix = ".globalreserve.io"

// bindings is the one that is asked about Bindings, and others are asked about what else takes capacity. Clusters
// without DRA have no webhook for ResourceClaims.
const bindings = "bindings" + suffix

var others = []string{"pods" + suffix, "created-pods" + suffix, "resizes" + suffix}

// webhooks says whether the API server asks about what other schedulers do. Admission is no duty: without it a
// scheduler that does not ask is only noticed.
func (v *view) webhooks(ctx context.Context) []Line {
	all, err := v.listWebhooks(ctx)
	if err != nil {
		return []Line{unseen("webhooks", err)}
	}
	if len(all) == 0 {
		return []Line{ok("webhooks", "not installed: a scheduler that does not ask is noticed, but not stopped")}
	}
	lines := configured(all)
	at := slices.IndexFunc(all, func(w webhook) bool { return w.name == bindings })
	if at < 0 {
		return lines // which say so
	}
	namespaces, err := v.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Line{unseen("webhooks", err)}
	}
	lines = append(lines, v.leftOut(ctx, &all[at], namespaces.Items)...)
	lines = append(lines, v.reach(ctx, &all[at], namespaces.Items)...)
	if len(lines) == 0 {
		lines = append(lines, ok("webhooks", "all %d are installed; %s is reached by a dry run", len(all), bindings))
	}
	return lines
}

func (v *view) listWebhooks(ctx context.Context) (all []webhook, err error) {
	hooks := v.Kube.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := hooks.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	add := func(name string, client admissionregistrationv1.WebhookClientConfig,
		policy *admissionregistrationv1.FailurePolicyType, namespaces, objects *metav1.LabelSelector,
	) {
		selector, badSelector := metav1.LabelSelectorAsSelector(namespaces)
		if err == nil {
			err = badSelector
		}
		if strings.HasSuffix(name, suffix) {
			all = append(all, webhook{
				name, client, ptr.Deref(policy, admissionregistrationv1.Fail), selector,
				objects != nil && len(objects.MatchLabels)+len(objects.MatchExpressions) > 0,
			})
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			add(w.Name, w.ClientConfig, w.FailurePolicy, w.NamespaceSelector, w.ObjectSelector)
		}
	}
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			add(w.Name, w.ClientConfig, w.FailurePolicy, w.NamespaceSelector, w.ObjectSelector)
		}
	}
	return all, err
}

// configured says what the configurations leave open.
func configured(all []webhook) (lines []Line) {
	var missing, ignoring, picking, ending []string
	for _, name := range append([]string{bindings}, others...) {
		if !slices.ContainsFunc(all, func(w webhook) bool { return w.name == name }) {
			missing = append(missing, name)
		}
	}
	first := time.Now().Add(renewBefore)
	for i := range all {
		if all[i].policy == admissionregistrationv1.Ignore {
			ignoring = append(ignoring, all[i].name)
		}
		if all[i].some {
			picking = append(picking, all[i].name)
		}
		if ends := all[i].authorityEnds(); !ends.IsZero() && time.Until(ends) < renewBefore {
			ending = append(ending, all[i].name)
			if ends.Before(first) {
				first = ends
			}
		}
	}
	if len(missing) > 0 {
		lines = append(lines, bad("webhooks", Fails, "apply manifests/admission again",
			"some are installed, and missing are %s", strings.Join(missing, ", ")))
	}
	if len(picking) > 0 {
		lines = append(lines, bad("webhooks", Warning, "take the objectSelector away, unless that is meant so",
			"asked about some objects alone, by their labels: %s", strings.Join(picking, ", ")))
	}
	if len(ignoring) > 0 {
		lines = append(lines, bad("webhooks", Warning, "see Fail or Ignore in manifests/admission/README.md",
			"failurePolicy Ignore: while no server answers everything passes: %s", strings.Join(ignoring, ", ")))
	}
	if len(ending) > 0 {
		state := Warning
		if time.Now().After(first) {
			state = Fails
		}
		lines = append(lines, bad("webhooks", state, newCertificate, "the authority in caBundle ends on %s: %s",
			first.UTC().Format(time.DateTime), strings.Join(ending, ", ")))
	}
	return lines
}

// authorityEnds is when the last of the authorities in the caBundle ends; zero where there is none, as those of the API
// server's host count then.
func (w *webhook) authorityEnds() (last time.Time) {
	authorities, _ := cert.ParseCertsPEM(w.client.CABundle) // without one the webhook is not reached, or needs none
	for _, authority := range authorities {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	return last
}

// leftOut names the namespaces with pods on nodes about whose bindings nobody is asked. kube-system and that of the
// servers are meant so.
func (v *view) leftOut(ctx context.Context, w *webhook, namespaces []v1.Namespace) []Line {
	var names []string
	for i := range namespaces {
		name := namespaces[i].Name
		if w.namespaces.Matches(labels.Set(namespaces[i].Labels)) || name == metav1.NamespaceSystem || name == v.Namespace {
			continue
		}
		pods, err := v.Kube.CoreV1().Pods(name).List(ctx, metav1.ListOptions{Limit: 1, FieldSelector: "spec.nodeName!="})
		if err != nil {
			return []Line{unseen("webhooks", err)}
		}
		if len(pods.Items) > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Line{bad("webhooks", Warning, "change the namespaceSelector, unless that is meant so",
		"%s leaves out namespaces that have pods on nodes: %s", w.name, strings.Join(names, ", "))}
}

// reach has the API server ask the webhook about a Binding that no API server carries out: its target is no node. The
// server says so in words of its own.
func (v *view) reach(ctx context.Context, w *webhook, namespaces []v1.Namespace) []Line {
	at := slices.IndexFunc(namespaces, func(n v1.Namespace) bool {
		return n.DeletionTimestamp == nil && w.namespaces.Matches(labels.Set(n.Labels))
	})
	if at < 0 {
		return []Line{bad("webhooks", Fails, "change the namespaceSelector", "%s leaves out all namespaces", w.name)}
	}
	const name = "globalreserve-check"
	namespace := namespaces[at].Name
	answer := v.Kube.CoreV1().Pods(namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Target:     v1.ObjectReference{Kind: "Check", Name: name},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	text := fmt.Sprint(answer)
	switch {
	case strings.Contains(text, "pods are bound to a Node"):
		return nil
	case strings.Contains(text, fmt.Sprintf("failed calling webhook %q", w.name)):
		return []Line{bad("webhooks", Fails, "kubectl -n "+v.Namespace+" get pods,endpointslices; docs/troubleshooting.md",
			"the API server does not reach %s, so no other scheduler can bind a pod: %v", w.name, answer)}
	case apierrors.IsForbidden(answer), strings.Contains(text, "failed calling webhook"): // of somebody else
		return []Line{unseen("webhooks", answer)}
	default:
		return []Line{bad("webhooks", Warning, "see the log of the API server, and whether the server has --admission-warn",
			"%s let a Binding pass that it should refuse: %v", w.name, answer)}
	}
}

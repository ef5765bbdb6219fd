package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/manifests/crd"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

// definition is what is compared of a CustomResourceDefinition.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Versions []struct {
			Name   string
			Schema any
		}
	}
	Status struct {
		Conditions []metav1.Condition
	}
}

// definitions compares the definitions of our kinds with those that this program was built with.
func (v *view) definitions(ctx context.Context) []Line {
	const do = "apply manifests/crd of the server's version"
	files, err := fs.Glob(crd.Files, "*.yaml")
	if err != nil {
		return []Line{unseen("definitions", err)}
	}
	var lines []Line
	for _, file := range files {
		var own, there definition
		content, err := fs.ReadFile(crd.Files, file)
		if err == nil {
			err = yaml.Unmarshal(content, &own)
		}
		if err != nil {
			return []Line{unseen("definitions", err)}
		}
		name := own.Metadata.Name
		body, err := v.Kube.Discovery().RESTClient().Get().
			AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(body, &there)
		}
		switch {
		case apierrors.IsNotFound(err):
			lines = append(lines, bad("definitions", Fails, do, "%s is not installed", name))
		case err != nil:
			return []Line{unseen("definitions", err)}
		case !established(&there):
			lines = append(lines, bad("definitions", Fails, "kubectl describe crd "+name+" says why",
				"%s is not served", name))
		case !reflect.DeepEqual(own.Spec.Versions, there.Spec.Versions):
			lines = append(lines, bad("definitions", Warning, do, "%s is of another version than this program", name))
		}
	}
	if len(lines) == 0 {
		lines = append(lines, ok("definitions", "all %d are installed, and those of this version", len(files)))
	}
	return lines
}

func established(d *definition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == "Established" {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// leads says who decides. The LedgerTerm tells who began the term, and a server's own metrics that it still decides.
func (v *view) leads(context.Context) []Line {
	if v.leader == nil {
		return []Line{v.noLeader()}
	}
	term := int64(v.leader.sum("term"))
	var line Line
	switch {
	case v.term == nil && !apierrors.IsNotFound(v.termErr):
		line = unseen("leader", v.termErr)
	case v.term == nil:
		line = bad("leader", Warning, "apply manifests/crd", "a server decides without a term, as LedgerTerm is not there")
	case v.term.Spec.Term != term:
		line = bad("leader", Warning, "check again: another server may just take over",
			"a server decides in term %d, and the cluster is in term %d", term, v.term.Spec.Term)
	default:
		line = ok("leader", "%s in term %d, since %s", count(len(v.servers), "server was asked; it decides",
			"servers were asked; one decides"), term, age(v.term.Spec.Since))
	}
	line.Who = v.leader.name
	return []Line{line}
}

// noLeader is the line where no server that was asked has shown that it decides: one that is ready passes requests on.
func (v *view) noLeader() Line {
	for _, s := range v.servers {
		switch {
		case s.err != nil || !s.ready:
		case s.metricsErr != nil:
			return bad("leader", Warning, "check with the role globalreserve-viewer",
				"not known, as a server that is ready does not show its metrics")
		case s.sum("observing") == 0:
			return bad("leader", Warning, "name that one with --ledger-url, or its Service with --service",
				"a server that was not asked decides; one that was asked stands by, and passes requests on to it")
		}
	}
	why := "no server that was asked decides"
	if v.term != nil && v.term.Spec.Leader != "" {
		why += fmt.Sprintf("; term %d began %s ago", v.term.Spec.Term, age(v.term.Spec.Since))
	}
	line := bad("leader", Fails, "see docs/runbooks/GlobalReserveNoLeader.md; with --ledger-url, give that of the leader",
		"%s", why)
	if v.term != nil {
		line.Who = "last known: " + v.term.Spec.Leader
	}
	return line
}

func age(since metav1.Time) string { return duration.HumanDuration(time.Since(since.Time)) }

// fenceNamespace is where the fence is tried: manifests/admission leaves it out, so no webhook answers first.
const fenceNamespace = metav1.NamespaceSystem

// fence tries whether the API server refuses a Binding of an earlier term. Nothing is bound: there is no such pod.
func (v *view) fence(ctx context.Context) []Line {
	const do = "apply manifests/crd and manifests/base/fence.yaml"
	if v.term == nil {
		return []Line{unseen("fence", v.termErr)}
	}
	answer := election.Probe(ctx, v.Kube, fenceNamespace, election.Term(v.term.Spec.Term-1))
	switch {
	case election.Refused(answer):
		return []Line{ok("fence", "up: a Binding of term %d was refused, in a dry run", v.term.Spec.Term-1)}
	case apierrors.IsNotFound(answer):
		return []Line{bad("fence", Fails, do, "a Binding of term %d, which is over, is not refused: "+
			"a server that was paused could give capacity away twice", v.term.Spec.Term-1)}
	case apierrors.IsForbidden(answer) && v.leader != nil && v.leader.sum("fence_up") > 0:
		return []Line{ok("fence", "up, by what the server says: you may not create pods/binding in %s", fenceNamespace)}
	case apierrors.IsForbidden(answer) && v.leader != nil:
		return []Line{bad("fence", Fails, do, "not up, by what the server says")}
	default:
		return []Line{unseen("fence", answer)}
	}
}

// need is a right that a check takes, or that people use kubectl reserve with.
type need struct{ verb, group, resource, subresource, namespace string }

// needs are looked at in all namespaces where none is named.
var needs = []need{
	{verb: "get", group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
	{verb: "get", group: "globalreserve.io", resource: "ledgerterms"},
	{verb: "list", group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations"},
	{verb: "list", group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations"},
	{verb: "list", resource: "namespaces"},
	{verb: "list", resource: "pods"},
	{verb: "create", resource: "pods", subresource: "binding"},
	{verb: "create", group: "globalreserve.io", resource: "reservations"},
}

// rights names the rights that who asks lacks.
func (v *view) rights(ctx context.Context) []Line {
	lacks, errs := make([]string, len(needs)), make([]error, len(needs))
	together(len(needs), func(i int) {
		n := needs[i]
		answer, err := v.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: n.verb, Group: n.group, Resource: n.resource, Subresource: n.subresource, Namespace: n.namespace,
				},
			}}, metav1.CreateOptions{})
		if errs[i] = err; err == nil && !answer.Status.Allowed {
			what := n.resource
			if n.subresource != "" {
				what += "/" + n.subresource
			}
			lacks[i] = n.verb + " " + what
		}
	})
	var missing []string
	for i, text := range lacks {
		if errs[i] != nil {
			return []Line{unseen("rights", errs[i])}
		}
		if text != "" {
			missing = append(missing, text)
		}
	}
	if len(missing) > 0 {
		return []Line{bad("rights", Warning, "ask for them, or check as somebody who has them",
			"you may not %s: what takes that is not looked at", strings.Join(missing, ", "))}
	}
	return []Line{ok("rights", "you have those that a check takes")}
}

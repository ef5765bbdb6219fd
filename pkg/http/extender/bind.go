package extender

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/validation"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// bind reserves capacity for the pod on the node and binds it there.
func (e *Extender) bind(w http.ResponseWriter, r *http.Request) error {
	var a extenderv1.ExtenderBindingArgs
	release, err := e.o.Intake.Decode(w, r, maxBindBody, &a)
	release() // no more of it is kept than four names
	if err != nil {
		return err
	}
	if err := checkBinding(&a); err != nil {
		return err
	}
	start := time.Now()
	ref := ledger.PodRef{Namespace: a.PodNamespace, Name: a.PodName, UID: a.PodUID}
	ctx, span := tracing.Pod(r.Context(), verbBind, ref)
	defer span.End()
	var pod *cluster.Pod
	var answer reserver.BindAnswer // kube-scheduler reads its Error
	if e.o.Observer != nil {
		err = e.o.Observer.Bind(ctx, ref, a.Node)
	} else {
		pod, err = e.o.Arbiter.Bind(ctx, ref, a.Node)
		answer.Revision = e.o.Ledger.Revision()
	}
	var denied *auth.DeniedError
	if errors.As(err, &denied) {
		return httpjson.Errorf(http.StatusForbidden, "%s", denied)
	}
	if err != nil {
		answer = e.refusal(err)
	}
	httpjson.Write(w, http.StatusOK, &answer)
	tracing.Placed(span, cmp.Or(answer.Outcome, resultGranted), a.Node, err)
	e.reportBind(ref, a.Node, pod, err, time.Since(start))
	return nil
}

// refusal is the answer that an error stands for.
func (e *Extender) refusal(err error) reserver.BindAnswer {
	answer := reserver.BindAnswer{Error: err.Error(), Outcome: outcomeOf(err)}
	var refused *gates.Error
	if errors.As(err, &refused) && refused.Outcome == gates.Refused {
		answer.Revision = e.o.Ledger.Revision()
		if refused.Rejection != nil { // else it is a gate's
			answer.Reason = refused.Rejection.Reason.String()
		}
	}
	return answer
}

// outcomeOf names the kind of a bind's error.
func outcomeOf(err error) string {
	var e *gates.Error
	if errors.As(err, &e) {
		return string(e.Outcome)
	}
	return string(gates.Failed)
}

// checkBinding refuses what cannot be the name of anything: the names go into paths and log lines.
func checkBinding(a *extenderv1.ExtenderBindingArgs) error {
	checks := []struct {
		field, value string
		wrong        func(string) []string
	}{
		{"PodName", a.PodName, validation.IsDNS1123Subdomain},
		{"PodNamespace", a.PodNamespace, validation.IsDNS1123Label},
		{"PodUID", string(a.PodUID), isUID},
		{"Node", a.Node, validation.IsDNS1123Subdomain},
	}
	for _, c := range checks {
		if c.value == "" {
			return badRequest("%s is missing: send PodName, PodNamespace, PodUID and Node", c.field)
		}
		if wrong := c.wrong(c.value); len(wrong) > 0 {
			return badRequest("%s \"%s\" is not usable: %s", c.field, httpjson.Clip(c.value), strings.Join(wrong, "; "))
		}
	}
	return nil
}

// isUID accepts more than the API server makes, but nothing that could hide in a log.
func isUID(uid string) []string {
	if len(uid) > maxName {
		return []string{fmt.Sprintf("must be no more than %d bytes", maxName)}
	}
	for i := range len(uid) {
		if uid[i] <= ' ' || uid[i] > '~' {
			return []string{"must consist of visible ASCII characters"}
		}
	}
	return nil
}

// reportBind counts and logs a bind: what was reserved, for whom, where, and
// what is left. A server that only observes knows nothing of that before the watch brings the pod.
func (e *Extender) reportBind(ref ledger.PodRef, node string, pod *cluster.Pod, err error, took time.Duration) {
	if pod == nil {
		pod = &cluster.Pod{Ref: ref, Request: &resources.Request{}}
	}
	outcome := resultGranted
	if err != nil {
		outcome = e.countRefusal(pod, err)
	}
	e.o.Metrics.ObserveDecision(verbBind, pod.Scheduler, outcome)
	if e.o.Observer != nil || !e.o.Log.IsLevelEnabled(logrus.InfoLevel) {
		return
	}
	columns := []resources.Column{resources.CPU, resources.Memory, resources.Pods}
	usage := e.o.Ledger.AppendUsage(nil, []string{node}, columns)
	log := e.o.Log.WithFields(podFields(pod)).WithFields(logrus.Fields{
		"node": node, "result": outcome, "ms": millis(took),
		"cpu_milli": pod.Request.Value(resources.CPU), "memory_bytes": pod.Request.Value(resources.Memory),
		"free_cpu_milli": usage[0].Free(), "free_memory_bytes": usage[1].Free(), "free_pods": usage[2].Free(),
	})
	if err != nil {
		log = log.WithError(err)
	}
	log.Info(verbBind)
}

// countRefusal names the kind of a bind's error, and counts what the ledger refused.
func (e *Extender) countRefusal(pod *cluster.Pod, err error) string {
	var refused *gates.Error
	if errors.As(err, &refused) && refused.Rejection != nil {
		e.o.Metrics.ObserveRejection(pod.Scheduler, refused.Rejection)
	}
	return outcomeOf(err)
}

package check

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// metricPrefix is that of all metrics of a server.
	metricPrefix = "globalreserve_"
	// longestAnswer bounds what is read of one answer, in bytes.
	longestAnswer = 64 << 20
	// answersWithin is how long a server may take, so that one that hangs leaves time for what else there is to look at.
	answersWithin = 10 * time.Second
	// quietFor is how long a watch may be silent, in seconds: the API server says something each minute.
	quietFor = 90
	// skew is how far two clocks may be apart. Times in headers and objects are whole seconds.
	skew = 3 * time.Second
	// newCertificate is what to do about one that ends.
	newCertificate = "make a new one: globalreserve certificate, or see cert-manager"
	// renewBefore is when the end of a certificate is worth a warning.
	renewBefore = 14 * 24 * time.Hour
)

// answers are what a server said of itself, or why it did not.
type answers struct {
	name string
	err  error
	// ready: the server answers /readyz with 200; says are the lines of that answer.
	ready bool
	says  []string
	// metrics are by name, and empty where metricsErr says why.
	metrics    map[string]*dto.MetricFamily
	metricsErr error
	// ahead is how far the server's clock is ahead of this host's.
	ahead time.Duration
	// until is when the certificate that the server shows ends; zero without TLS.
	until time.Time
}

func ask(ctx context.Context, s *Server) *answers {
	a := &answers{name: s.Name, err: s.Err}
	if a.err != nil {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	text, status, err := a.read(ctx, s, "/readyz?verbose")
	if a.err = err; err != nil {
		return a
	}
	a.ready, a.says = status == http.StatusOK, strings.Split(strings.TrimSpace(text), "\n")
	text, status, a.metricsErr = a.read(ctx, s, "/metrics")
	if a.metricsErr == nil && status != http.StatusOK {
		a.metricsErr = errors.New(strings.TrimSpace(text))
	}
	if a.metricsErr == nil {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		a.metrics, a.metricsErr = parser.TextToMetricFamilies(strings.NewReader(text))
	}
	return a
}

// read reads what a server has at a path, and notes its clock and its certificate.
func (a *answers) read(ctx context.Context, s *Server, path string) (text string, status int, err error) {
	asked := time.Now()
	response, err := s.Client.Response(ctx, path)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	if there, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		a.ahead = ahead(there, asked)
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		a.until = response.TLS.PeerCertificates[0].NotAfter
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	return string(body), response.StatusCode, err
}

// ahead is how far a clock was ahead that showed there, in whole seconds, at some moment since asked.
func ahead(there, asked time.Time) time.Duration {
	now := time.Now()
	switch {
	case there.After(now):
		return there.Sub(now)
	case there.Add(time.Second).Before(asked):
		return there.Add(time.Second).Sub(asked)
	default:
		return 0
	}
}

// each returns the values of a metric by those of one label; more are a second label, and the values of it that count.
func (a *answers) each(name, label string, labels ...string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range a.metrics[metricPrefix+name].GetMetric() {
		has := map[string]string{}
		for _, pair := range m.GetLabel() {
			has[pair.GetName()] = pair.GetValue()
		}
		if len(labels) == 0 || slices.Contains(labels[1:], has[labels[0]]) {
			values[has[label]] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// sum adds up all series of a metric.
func (a *answers) sum(name string) (sum float64) {
	for _, value := range a.each(name, "") {
		sum += value
	}
	return sum
}

// ready has a line for each server.
func (v *view) ready(context.Context) (lines []Line) {
	for _, s := range v.servers {
		var rest []string
		if len(s.says) > 1 {
			rest = slices.DeleteFunc(slices.Clone(s.says[1:]), func(text string) bool {
				return strings.HasPrefix(text, "fence: ") // has a line of its own
			})
		}
		line := ok("servers", "ready")
		switch {
		case s.err != nil:
			line = bad("servers", Fails, "see its log, and --ledger-url and the flags beside it", "no answer: %v", s.err)
		case !s.ready:
			line = bad("servers", Fails, "do what the text says", "not ready: %s", strings.Join(s.says, "; "))
		case len(rest) > 0:
			line = bad("servers", Warning, "apply the file that the text names", "%s", strings.Join(rest, "; "))
		case s.metricsErr != nil:
			line = bad("servers", Warning, "check with the role globalreserve-viewer", "shows no metrics: %v", s.metricsErr)
		}
		line.Who = s.name
		lines = append(lines, line)
	}
	return lines
}

// certificates has a line for each server that is asked over TLS.
func (v *view) certificates(context.Context) (lines []Line) {
	for _, s := range v.servers {
		var line Line
		switch invalid := (x509.CertificateInvalidError{}); {
		case errors.As(s.err, &invalid) && invalid.Reason == x509.Expired:
			line = bad("certificate", Fails, newCertificate, "it has ended: %v", s.err)
		case s.until.IsZero():
			continue // without TLS, or no answer
		case time.Until(s.until) < renewBefore:
			line = bad("certificate", Warning, newCertificate, "it ends on %s", s.until.UTC().Format(time.DateTime))
		default:
			line = ok("certificate", "valid until %s", s.until.UTC().Format(time.DateOnly))
		}
		line.Who = s.name
		lines = append(lines, line)
	}
	return lines
}

// watches says whether the servers hear from the API server.
func (v *view) watches(context.Context) (lines []Line) {
	oldest, heard := 0.0, false
	for _, s := range v.servers {
		ages := s.each("watch_age_seconds", "kind")
		heard = heard || len(ages) > 0
		var silent []string
		for _, kind := range slices.Sorted(maps.Keys(ages)) {
			oldest = max(oldest, ages[kind])
			if ages[kind] >= quietFor {
				silent = append(silent, fmt.Sprintf("%s for %.0f s", kind, ages[kind]))
			}
		}
		if len(silent) > 0 {
			line := bad("watches", Fails, "see the server's log; the network to the API server, or a right, is missing",
				"nothing was heard of %s", strings.Join(silent, ", "))
			line.Who = s.name
			lines = append(lines, line)
		}
	}
	if !heard {
		return []Line{unseen("watches", errUnread)}
	}
	if len(lines) == 0 {
		lines = append(lines, ok("watches", "the oldest news of a kind is %.0f s old", oldest))
	}
	return lines
}

// errUnread is why what the metrics of the leader, or of any server, say is not known.
var errUnread = errors.New("no server has shown that in its metrics")

// clocks compares the clocks of this host, of the servers and of the API server.
func (v *view) clocks(ctx context.Context) []Line {
	asked, answered := time.Now(), false
	self, err := v.Kube.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return []Line{unseen("clocks", err)}
	}
	api := ahead(self.CreationTimestamp.Time, asked)
	furthest := time.Duration(0)
	for _, s := range v.servers {
		if s.err != nil {
			continue
		}
		answered = true
		if apart := s.ahead - api; apart.Abs() > furthest.Abs() {
			furthest = apart
		}
	}
	if furthest.Abs() > skew {
		return []Line{bad("clocks", Warning, "set the clocks of the hosts by NTP: deadlines in objects are off by that",
			"a server and the API server are %s apart", furthest.Abs().Round(time.Second))}
	}
	if !answered {
		return []Line{unseen("clocks", errUnread)}
	}
	return []Line{ok("clocks", "servers and API server agree")}
}

// versions compares the versions of the servers, the chart and this program.
func (v *view) versions(ctx context.Context) []Line {
	of := map[string]sets.Set[string]{"plugin": sets.New(v.Version), "servers": {}, "chart": {}}
	for _, s := range v.servers {
		for version := range s.each("build_info", "version") {
			of["servers"].Insert(version)
		}
	}
	deployments, err := v.Kube.AppsV1().Deployments(v.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=globalreserve,helm.sh/chart",
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return []Line{unseen("versions", err)}
	}
	for i := range deployments.Items {
		if version := deployments.Items[i].Labels["app.kubernetes.io/version"]; version != "" {
			of["chart"].Insert(version)
		}
	}
	all, texts := sets.New[string](), []string(nil)
	for _, what := range slices.Sorted(maps.Keys(of)) {
		if len(of[what]) > 0 {
			all = all.Union(of[what])
			texts = append(texts, what+" "+strings.Join(sets.List(of[what]), ", "))
		}
	}
	if len(of["servers"]) == 0 {
		return []Line{unseen("versions", errUnread)}
	}
	if len(all) > 1 {
		return []Line{bad("versions", Warning, "use one version, but for the time of an upgrade: docs/upgrade.md",
			"they differ: %s", strings.Join(texts, "; "))}
	}
	return []Line{ok("versions", "%s", strings.Join(texts, "; "))}
}

// policy says whether the policy file is in force.
func (v *view) policy(context.Context) []Line {
	if v.leader == nil {
		return []Line{unseen("policy", errUnread)}
	}
	failed := v.leader.sum("policy_reload_failures_total")
	loaded := v.leader.sum("policy_last_reload_success_timestamp_seconds")
	switch {
	case failed > 0:
		return []Line{bad("policy", Warning, "see the server's log, and try the file: globalreserve policy validate FILE",
			"%s of the file failed since the server has started", count(int(failed), "reload", "reloads"))}
	case loaded == 0:
		return []Line{ok("policy", "the defaults: the server has no policy file")}
	default:
		return []Line{ok("policy", "loaded at %s", time.Unix(int64(loaded), 0).UTC().Format(time.DateTime))}
	}
}

// ledger says whether the ledger is right, and no node holds more than it has.
func (v *view) ledger(context.Context) (lines []Line) {
	if v.leader == nil {
		return []Line{unseen("ledger", errUnread)}
	}
	if drift := v.leader.sum("ledger_drift"); drift > 0 {
		lines = append(lines, bad("ledger", Fails, "see docs/runbooks/GlobalReserveLedgerDrift.md",
			"%s between ledger and cluster", count(int(drift), "difference", "differences")))
	}
	if double := v.leader.sum("dra_double_devices"); double > 0 {
		lines = append(lines, bad("ledger", Fails, "see docs/runbooks/GlobalReserveDeviceGivenTwice.md",
			"%s given twice", count(int(double), "DRA device is", "DRA devices are")))
	}
	if over := v.leader.sum("overcommitted_nodes"); over > 0 {
		lines = append(lines, bad("ledger", Fails,
			"kubectl reserve nodes shows them: docs/runbooks/GlobalReserveOvercommit.md", "%s overcommitted",
			count(int(over), "node is", "nodes are")))
	}
	if len(lines) == 0 {
		compared := "no difference to the cluster was found"
		if v.leader.metrics[metricPrefix+"ledger_drift"] == nil {
			compared = "not yet compared with the cluster"
		}
		lines = append(lines, ok("ledger", "%s, none overcommitted; %s",
			count(int(v.leader.sum("nodes")), "node", "nodes"), compared))
	}
	return lines
}

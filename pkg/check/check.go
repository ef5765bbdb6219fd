// Package check finds out whether a cluster is protected: whether a server decides, whether late writes of earlier ones
// are refused, whether all schedulers ask, and whether what is installed fits together. It is the engine of
// kubectl reserve check.
//
//   - check.go      what a Check looks at, and in which order
//   - servers.go    what the servers say of themselves: readiness, watches, ledger, policy, versions, clocks
//   - api.go        what the API server has: definitions, term, fence, and the rights of who asks
//   - webhooks.go   the admission webhooks, and whether they are reached
//   - schedulers.go which schedulers bind pods, and which of them ask
//   - race.go       tries a reservation, a conflict and a release
//
// What may be touched: a Check but for Race changes nothing. It judges by what the API server and the metrics of the
// servers say, so a new metric needs no change here. No line names a pod, so that reports may be shown to others.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// State is what a Line comes to.
type State string

// The states. Warning is for what may be meant so, and for what could not be looked at.
const (
	OK      State = "ok"
	Warning State = "warning"
	Fails   State = "fails"
)

// Line is one thing that was looked at.
type Line struct {
	// Name is of a fixed set: definitions, leader, fence, and so on.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Says is what was found, and Do what to do about it.
	Says string `json:"says"`
	Do   string `json:"do,omitempty"`
	// Who is a server, whose name is that of a pod: it is for the screen alone.
	Who string `json:"-"`
}

// Worst is the state that all lines together come to.
func Worst(lines []Line) State {
	worst := OK
	for i := range lines {
		if state := lines[i].State; state == Fails || worst == OK {
			worst = state
		}
	}
	return worst
}

// Server is one server to look at. Its name is for the screen alone.
type Server struct {
	Name   string
	Client *client.Client
	// Err is why there is no Client.
	Err error
}

// Check looks at a cluster. All fields are required, but for Version.
type Check struct {
	Kube    kubernetes.Interface
	Objects versioned.Interface
	// Servers are all that are known.
	Servers []Server
	// Namespace is where the servers are.
	Namespace string
	// Version is that of the program that looks.
	Version string
}

// view is what several lines are drawn from.
type view struct {
	*Check
	servers []*answers
	// leader is the one of servers that decides, or nil.
	leader *answers
	// term is nil where there is none, and termErr says why.
	term    *v1alpha1.LedgerTerm
	termErr error
}

// Run looks at everything once. It takes as long as the slowest answer, or ctx.
func (c *Check) Run(ctx context.Context) []Line {
	v := &view{Check: c, servers: make([]*answers, len(c.Servers))}
	together(len(c.Servers)+1, func(i int) {
		if i == len(c.Servers) {
			var term *v1alpha1.LedgerTerm
			term, v.termErr = c.Objects.GlobalreserveV1alpha1().LedgerTerms().
				Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
			if v.termErr == nil {
				v.term = term
			}
			return
		}
		v.servers[i] = ask(ctx, &c.Servers[i])
	})
	for _, s := range v.servers {
		if s.sum("leader") > 0 {
			v.leader = s
		}
	}
	parts := []func(context.Context) []Line{
		v.definitions, v.rights, v.leads, v.fence, v.ready, v.certificates, v.watches, v.clocks, v.versions, v.policy,
		v.ledger, v.webhooks, v.schedulers,
	}
	found := make([][]Line, len(parts))
	together(len(parts), func(i int) { found[i] = parts[i](ctx) })
	var lines []Line
	for _, some := range found {
		lines = append(lines, some...)
	}
	names := v.names()
	for i := range lines {
		lines[i].Says = names.Replace(lines[i].Says)
	}
	return lines
}

// names takes the names of servers, which are those of pods, out of what errors and servers say. The identity of a
// server is that of its host, and a suffix.
func (v *view) names() *strings.Replacer {
	var pairs []string
	hide := func(name string) {
		host, _, _ := strings.Cut(name, "_")
		for _, text := range []string{name, host} {
			if text != "" && !strings.Contains(text, "://") {
				pairs = append(pairs, text, "(a server)")
			}
		}
	}
	for i := range v.Servers {
		hide(v.Servers[i].Name)
	}
	if v.term != nil {
		hide(v.term.Spec.Leader)
		for i := range v.term.Status.Servers {
			hide(v.term.Status.Servers[i].Name)
		}
	}
	return strings.NewReplacer(pairs...)
}

// together calls one for each of n numbers side by side.
func together(n int, one func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { one(i) })
	}
	group.Wait()
}

func ok(name, format string, args ...any) Line {
	return Line{Name: name, State: OK, Says: fmt.Sprintf(format, args...)}
}

func bad(name string, state State, do, format string, args ...any) Line {
	return Line{Name: name, State: state, Do: do, Says: fmt.Sprintf(format, args...)}
}

// unseen is the line of what could not be looked at: a warning where only a right of who asks is missing, or another
// line has the reason.
func unseen(name string, err error) Line {
	switch {
	case errors.Is(err, errUnread):
		return bad(name, Warning, "see the lines about leader and servers", "could not be looked at: %v", err)
	case apierrors.IsForbidden(err):
		return bad(name, Warning, "ask for the right, or check as somebody who has it", "could not be looked at: %v", err)
	default:
		return bad(name, Fails, "try again; if it stays, see the log of the API server", "could not be looked at: %v", err)
	}
}

// count is a number of things, in words.
func count(n int, one, many string) string {
	return fmt.Sprintf("%d %s", n, cmp.Or(map[bool]string{true: one}[n == 1], many))
}

package ledgertest

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestMain makes runs long enough for pods to be reserved, bound, removed and
// made anew. -rapid.steps and -rapid.checks ask for more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.steps": "120", "rapid.checks": "500", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestLedgerAgreesWithModel does random things to a ledger and to the naive
// model and compares all there is to see after each.
func TestLedgerAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pair := NewPair(ledger.Options{FirstRevision: rapid.Uint64Range(0, 100).Draw(t, "first revision")})
		w := NewWorld(pair.Ledger.Table())
		for range len(nodeNames) {
			pair.ObserveNode(w.NodeObservation(t))
		}
		t.Repeat(actions(pair, w))
	})
}

// actions lists what can happen. An action under two names is drawn more often.
func actions(p *Pair, w *World) map[string]func(*rapid.T) {
	reserve := func(t *rapid.T) { p.Reserve(w.Plan(t), w.Now) }
	startBind := func(t *rapid.T) {
		at := w.Placement(t)
		p.StartBind(&at, w.Now)
	}
	return map[string]func(*rapid.T){
		"":                func(t *rapid.T) { require.NoError(t, p.Check()) },
		"reserve":         reserve,
		"reserve again":   reserve,
		"start bind":      startBind,
		"redeem":          func(t *rapid.T) { redeem(t, p, w) },
		"confirm":         func(t *rapid.T) { p.Confirm(w.Pod(t), w.Node(t)) },
		"confirm claim":   func(t *rapid.T) { settle(t, p, w, p.Confirm) },
		"bind failed":     func(t *rapid.T) { p.BindFailed(w.Pod(t), w.Node(t)) },
		"claim failed":    func(t *rapid.T) { settle(t, p, w, p.BindFailed) },
		"unreserve":       func(t *rapid.T) { p.Unreserve(forgetful(t, w.Placements(t))) },
		"expire":          func(t *rapid.T) { w.Pass(t); p.Expire(w.Now) },
		"time":            func(t *rapid.T) { w.Pass(t) },
		"observe node":    func(t *rapid.T) { p.ObserveNode(w.NodeObservation(t)) },
		"remove node":     func(t *rapid.T) { p.RemoveNode(w.Node(t)) },
		"observe pod":     func(t *rapid.T) { p.ObservePod(w.PodObservation(t)) },
		"observe claim":   func(t *rapid.T) { observeClaim(t, p, w) },
		"observe unbound": func(t *rapid.T) { p.ObserveUnbound(w.Pod(t)) },
		"remove pod":      func(t *rapid.T) { p.RemovePod(w.Pod(t), w.Version(t)) },
		"recreate pod":    func(t *rapid.T) { w.Recreate(t) },
		"ask":             func(t *rapid.T) { p.Ask(w.Pod(t), w.Request(t, false), append(nodeNames, "nowhere"), w.Victims(t)) },
	}
}

// drawClaim returns a claim that exists, or a pod without any.
func drawClaim(t *rapid.T, p *Pair, w *World) ledger.ClaimView {
	claims, _ := p.Ledger.Claims()
	if len(claims) == 0 {
		at := w.Placement(t)
		return ledger.ClaimView{Pod: at.Pod, Node: at.Node, Request: at.Request}
	}
	return claims[rapid.IntRange(0, len(claims)-1).Draw(t, "claim")]
}

// redeem binds a pod where its claim is, most times for what it asked before.
func redeem(t *rapid.T, p *Pair, w *World) {
	c := drawClaim(t, p, w)
	at := ledger.Placement{Pod: c.Pod, Node: c.Node, Request: c.Request, Scheduler: c.Scheduler}
	if rapid.IntRange(0, 2).Draw(t, "other request") == 0 {
		at.Request = w.Request(t, false)
	}
	p.StartBind(&at, w.Now)
}

func settle(t *rapid.T, p *Pair, w *World, how func(ledger.PodRef, string)) {
	c := drawClaim(t, p, w)
	how(c.Pod, c.Node)
}

// observeClaim finds a pod bound where its claim is.
func observeClaim(t *rapid.T, p *Pair, w *World) {
	c := drawClaim(t, p, w)
	o := w.PodObservation(t)
	o.Node = c.Node
	if rapid.Bool().Draw(t, "same request") {
		o.Request = c.Request
	}
	if c.Pod.UID != "" {
		o.Pod = c.Pod
	}
	p.ObservePod(o)
}

// forgetful leaves out of some placements what unreserve does not need.
func forgetful(t *rapid.T, placements []ledger.Placement) []ledger.Placement {
	for k := range placements {
		p := &placements[k]
		if rapid.Bool().Draw(t, "no node") {
			p.Node = ""
		}
		if rapid.Bool().Draw(t, "no scheduler") {
			p.Scheduler = ""
		}
		p.Request = nil
	}
	return placements
}

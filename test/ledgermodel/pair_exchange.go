package ledgermodel

import (
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// StartBindWith compares the start of a bind with what happens beside it.
func (p *Pair) StartBindWith(at *ledger.Placement, x *ledger.Exchange, now time.Time) {
	before, was := p.Ledger.Revision(), p.Ledger.Snapshot()
	p.Ledger.Try(func(t *ledger.Trial) { t.Exchange(x) })
	p.differ("revision after an exchange that is tried", p.Ledger.Revision(), before)
	p.differ("the ledger after an exchange that is tried", p.Ledger.Snapshot(), was)
	grant, rejection := p.Ledger.StartBindWith(at, x, now)
	wantGrant, want := p.Model.StartBindWith(at, x, now)
	p.differ("start bind with others: grant", grant, wantGrant)
	p.rejection("start bind with others", rejection, want)
}

// Exchange compares what happens beside a bind, without one.
func (p *Pair) Exchange(x *ledger.Exchange, now time.Time) {
	p.rejection("exchange", p.Ledger.Exchange(x, now), p.Model.Exchange(x, now))
}

// BindFailedKeeping compares a bind that fails and leaves something.
func (p *Pair) BindFailedKeeping(pod ledger.PodRef, node string, deadline time.Time) {
	p.differ("bind failed, keeping", p.Ledger.BindFailedKeeping(pod, node, deadline),
		p.Model.BindFailedKeeping(pod, node, deadline))
}

// PutOff compares the deadlines of what is kept in memory.
func (p *Pair) PutOff(pods []ledger.PodRef, deadline time.Time) {
	p.Ledger.PutOff(pods, deadline)
	p.Model.PutOff(pods, deadline)
}

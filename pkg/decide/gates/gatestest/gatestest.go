// Package gatestest has ledgers behind gates for tests. The gates are the real ones.
package gatestest

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// Ledger is a ledger that can always be asked, under the default policy.
func Ledger(l *ledger.Ledger) *gates.GatedLedger {
	open := gates.New(policy.NewStore(policy.Default(), time.Minute))
	return gates.NewGatedLedger(l, steady.New(time.Now, steady.Uptime), open, func() string { return "" })
}

// Limited is the default policy, where a scheduler has limits, for the callers that may act for it. There is always
// one, somebody-else, which no test uses.
func Limited(scheduler string, callers ...string) *policy.Policy {
	p := policy.Default()
	p.Schedulers = []policy.Scheduler{{
		Name: scheduler, Callers: append(callers, "somebody-else"), Limits: map[v1.ResourceName]policy.Amount{"cpu": "100%"},
	}}
	return p
}

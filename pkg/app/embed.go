package app

import (
	"net/http"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// What follows is for a program that has the server in its own process.

// Handler returns what is served over TLS, for callers in this process: auth.As says who is calling.
func (a *App) Handler() http.Handler { return a.known }

// Waiting are the pods that wait. A scheduler in this process takes its own pods out of them by Host; see
// pkg/schedulerplugin.
func (a *App) Waiting() *requeue.Pods { return a.waiting }

// Deciding reports whether the account can be decided on: it is complete, and the server is not stopping.
func (a *App) Deciding() bool { return !a.health.stopping.Load() && a.health.undecided() == "" }

// Ledger returns the account.
func (a *App) Ledger() ledger.Reader { return a.ledger.Reader }

// Gates are asked before the ledger.
func (a *App) Gates() *gates.Gates { return a.ledger.Gates }

// Arbiter is what decides on pods for all integration paths.
func (a *App) Arbiter() *decide.Arbiter { return a.arbiter }

// Question is how pods ask the ledger for capacity.
func (a *App) Question() *placement.Builder { return a.question }

// never is longer than any call of this process takes.
const never = 1 << 62

// Reserver returns a client of this server, for a scheduler in the same process: it asks without the network, may do
// everything, waits for nothing that clients have of the server, and tries nothing again. Before the server is ready,
// and after Stop, its calls fail with a *reserver.UnavailableError; Stop waits for those under way.
func (a *App) Reserver() *client.Client {
	c, err := client.New(client.Options{
		URL: "http://localhost", Handler: a.inside, Timeout: never, RetryFor: 1, MaxAnswer: never,
	})
	if err != nil {
		panic(err) // they are constants
	}
	return c
}

package app

import (
	"context"
	"net/http"

	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
)

// The code below is for a server with --observe; see pkg/http/observe. It knows the pods and the nodes and nothing
// else: parts that write to the cluster, or follow what only a server that decides needs, do not run. It takes no part
// in the election, and passes nothing on to the leader.

// observing returns the options without what a server that only observes has no use for: nothing is passed on to it.
func (o Options) observing() Options {
	if o.Observe {
		o.Peers = PeerOptions{}
	}
	return o
}

// startObserving starts what there is to observe with.
func (a *App) startObserving(ctx context.Context) {
	a.base.start(ctx, []part{
		{"pods and nodes", a.followCluster},
		{"ages of watches", a.watchAges},
	}...)
	a.mayFollow.Open()
	a.account.start(ctx, []part{
		{"observing", func(ctx context.Context) error {
			if a.cache.WaitForSync(ctx) == nil {
				a.caughtUp.Open()
			}
			<-ctx.Done()
			return nil
		}},
		{"comparer", a.comparer.Run},
	}...)
	a.serving.start(ctx, a.servingParts()...)
}

// refusesNothing reports whether a server that only observes answers yes on a path, whatever it has read by then: a
// scheduler, or the API server, must not wait for it.
func refusesNothing(path string) bool {
	switch path {
	case "/filter", "/prioritize", "/preempt", "/bind":
		return true
	default:
		return admission.Serves(path)
	}
}

// notLeading returns "" while this server is the one to ask, else why it is not.
func (a *App) notLeading() string {
	if a.options.Observe {
		return ""
	}
	return a.elector.Leads()
}

// forwarded passes on what another server has to decide.
func (a *App) forwarded(passes func(path string) bool, local http.Handler) http.Handler {
	if a.options.Observe {
		return local
	}
	return a.forwarder.Handler(passes, local)
}

// reserveRefusal says why this server grants no reservations, or is "".
func (a *App) reserveRefusal() string {
	if a.options.Observe {
		return observe.ReserveText
	}
	return ""
}

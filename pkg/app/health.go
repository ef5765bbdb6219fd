package app

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/julienschmidt/httprouter"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// health answers the probes, and keeps decisions from being made on an account that is not complete yet.
type health struct {
	synced func() bool
	// troubles says why something cannot be read, and what to do about it, or "".
	troubles   func() string
	observes   bool                   // it decides nothing
	notLeading func() string          // why this server is not the one that decides, or ""
	stale      atomic.Pointer[string] // the kinds whose latest news is too old to decide on; nil or empty: none
	fence      func() (fence election.Fence, known bool)
	// unreachable says why the server that decides cannot be asked from here, or "".
	unreachable func() string
	// notes returns lines, each after a line break, about trouble that does not keep the server from deciding.
	notes    func() string
	metrics  *metrics.Metrics
	stopping atomic.Bool
}

// ready returns "" once requests should be sent here, else why not. A server that does not decide is ready, too, where
// it can pass requests on.
func (h *health) ready() string {
	switch {
	case h.stopping.Load():
		return "the server is stopping; ask again in a moment"
	case h.notLeading() != "" && h.unreachable() == "":
		return ""
	default:
		return h.undecided()
	}
}

// undecided returns "" once the account can be decided on, else why not. A
// stopping server goes on: those who ask have been routed to it already.
func (h *health) undecided() string {
	if why := h.notLeading(); why != "" {
		if unreachable := h.unreachable(); unreachable != "" {
			why += " (" + unreachable + ")"
		}
		return why + h.aboutTroubles()
	}
	if !h.synced() {
		return "the server has not read all nodes and pods yet; ask again in a moment" + h.aboutTroubles()
	}
	if what := h.staleKinds(); what != "" {
		return "the server may not know of the latest changes: " + what + "; ask again in a moment"
	}
	return ""
}

// aboutTroubles is the rest of a sentence about what cannot be read.
func (h *health) aboutTroubles() string {
	if troubles := h.troubles(); troubles != "" {
		return ". " + troubles
	}
	return ""
}

// staleKinds names the kinds whose latest news is too old to decide on, or is "".
func (h *health) staleKinds() string { return ptr.Deref(h.stale.Load(), "") }

// aboutFence says whether this server found that the API server refuses what a server before it sends.
func (h *health) aboutFence() string {
	fence, known := h.fence()
	switch {
	case !known:
		return "fence: looked at when this server takes over"
	case fence.Up:
		return "fence: up"
	default:
		return "fence: not up: " + fence.Why
	}
}

// handler serves probes and metrics alone, on a port where requests for decisions cannot be in their way.
func (h *health) handler() http.Handler {
	router := httpjson.NewRouter()
	h.register(router)
	return router
}

func (h *health) register(router *httprouter.Router) {
	alive := func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }
	ready := func(w http.ResponseWriter, r *http.Request) {
		status, text := http.StatusOK, "ok"
		if why := h.ready(); why != "" {
			status, text = http.StatusServiceUnavailable, why
		}
		switch {
		case h.observes && status == http.StatusOK:
			text = "ok: this server only observes (--observe): it decides nothing and refuses nothing"
		case r.URL.Query().Has("verbose"):
			text += "\n" + h.aboutFence()
			text += h.notes()
		}
		writeText(w, status, text)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} { // some load balancers probe with HEAD
		router.HandlerFunc(method, "/livez", alive)
		router.HandlerFunc(method, "/healthz", alive)
		router.HandlerFunc(method, "/readyz", ready)
	}
	router.HandlerFunc(http.MethodGet, "/version", func(w http.ResponseWriter, _ *http.Request) {
		httpjson.Write(w, http.StatusOK, version.Get())
	})
	router.Handler(http.MethodGet, "/metrics", h.metrics.Handler())
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client is gone if this fails
}

// errorInBody are the verbs whose answers have an Error field: kube-scheduler reads
// it only from an answer with status 200.
var errorInBody = map[string]bool{"/filter": true, "/bind": true}

// retryAfter is when to ask a server again that is not ready, in seconds.
const retryAfter = "1"

// untilComplete refuses what needs the account until it is complete.
func (h *health) untilComplete(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := h.undecided()
		if why == "" || exempt(r.URL.Path) || (h.observes && refusesNothing(r.URL.Path)) {
			next.ServeHTTP(w, r)
			return
		}
		if errorInBody[r.URL.Path] {
			h.metrics.ObserveRequest(strings.TrimPrefix(r.URL.Path, "/"), http.StatusOK, 0)
		} else {
			h.metrics.ObserveRequest("not-ready", http.StatusServiceUnavailable, 0)
		}
		refuse(w, r, http.StatusServiceUnavailable, why, gates.NotReady)
	})
}

// lettingGo makes clients of a stopping server open their next connection elsewhere. An idle connection that the
// server closes may be closed just when a request is sent on it.
func (h *health) lettingGo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// unknown answers a request where it is not known what was done. 503 would say that nothing was done.
func (h *health) unknown(w http.ResponseWriter, r *http.Request, why string) {
	refuse(w, r, http.StatusBadGateway, why, gates.Unknown)
}

func refuse(w http.ResponseWriter, r *http.Request, status int, why string, outcome gates.Outcome) {
	w.Header().Set("Retry-After", retryAfter)
	if errorInBody[r.URL.Path] {
		httpjson.Write(w, http.StatusOK, map[string]any{"Error": why, "Outcome": outcome})
		return
	}
	httpjson.WriteError(w, httpjson.Errorf(status, "%s", why))
}

// exempt reports whether a path needs no gate: it is served without the account, its answer says how complete the
// account is, or it asks the arbiter, which itself says that it does not decide yet.
func exempt(path string) bool {
	switch path {
	case "/livez", "/readyz", "/healthz", "/metrics", "/version", "/openapi.yaml", "/reserve", "/unreserve",
		"/debug/ledger", "/debug/diff":
		return true
	default:
		return false
	}
}

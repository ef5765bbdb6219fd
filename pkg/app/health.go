package app

import (
	"net/http"
	"sync/atomic"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// health answers the probes, and keeps decisions from being made on an account
// that is not complete yet.
type health struct {
	synced   func() bool
	stopping atomic.Bool
}

// ready returns "" once decisions can be made, else why not.
func (h *health) ready() string {
	switch {
	case h.stopping.Load():
		return "the server is stopping; ask again in a moment"
	case !h.synced():
		return "the server has not read all nodes and pods yet; ask again in a moment"
	default:
		return ""
	}
}

func (h *health) register(router *httprouter.Router) {
	alive := func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }
	router.HandlerFunc(http.MethodGet, "/livez", alive)
	router.HandlerFunc(http.MethodGet, "/healthz", alive)
	router.HandlerFunc(http.MethodGet, "/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := h.ready(); why != "" {
			writeText(w, http.StatusServiceUnavailable, why)
			return
		}
		writeText(w, http.StatusOK, "ok")
	})
	router.HandlerFunc(http.MethodGet, "/version", func(w http.ResponseWriter, _ *http.Request) {
		httpjson.Write(w, http.StatusOK, version.Get())
	})
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client is gone if this fails
}

// errorInBody are the verbs whose answers have an Error field: kube-scheduler
// and group schedulers read it only from an answer with status 200.
var errorInBody = map[string]bool{"/filter": true, "/bind": true, "/reserve": true, "/unreserve": true}

// gate refuses what needs the account until it is complete. A stopping server
// goes on answering: those who ask have been routed to it already.
func (h *health) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.synced() || exempt(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		refusal := httpjson.Errorf(http.StatusServiceUnavailable, "%s", h.ready())
		if errorInBody[r.URL.Path] {
			httpjson.Write(w, http.StatusOK, map[string]string{"Error": refusal.Message})
			return
		}
		w.Header().Set("Retry-After", "1")
		httpjson.WriteError(w, refusal)
	})
}

// exempt reports whether a path is served without the account.
func exempt(path string) bool {
	switch path {
	case "/livez", "/readyz", "/healthz", "/metrics", "/version", "/openapi.yaml":
		return true
	default:
		return false
	}
}

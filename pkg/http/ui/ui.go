package ui

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

//go:embed all:dist
var dist embed.FS

// policy lets the page load and ask only what comes from its own origin, and keeps other pages from showing it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// lists are the routes that the page asks, but that of one node.
var lists = map[string]bool{
	"/v1/nodes": true, "/v1/allocations": true, "/v1/reservations": true, "/v1/gangs": true, "/v1/refusals": true,
	"/v1/pending": true, "/v1/watch": true,
}

// types are by the name: what the machine's own tables say of scripts is not always right.
var types = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// Handler serves the page, and passes on what it asks. Make one with New.
type Handler struct{ api, files http.Handler }

// New returns a Handler that passes on to api what the page asks.
func New(api http.Handler) *Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // they are in the binary
	}
	return &Handler{api: api, files: http.FileServerFS(files)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", policy)
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/"):
		h.ask(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		httpjson.WriteError(w, httpjson.Errorf(http.StatusMethodNotAllowed,
			"the page only reads: send GET here, and all else to the server's other ports"))
	case r.URL.Path != "/" && path.Ext(r.URL.Path) == "":
		httpjson.WriteError(w, httpjson.Errorf(http.StatusNotFound, "there is no \"%s\" here: the page is at /",
			httpjson.Clip(r.URL.Path)))
	default:
		header.Set("Cache-Control", "no-cache")
		if strings.HasPrefix(r.URL.Path, "/assets/") { // their names change with their content
			header.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		if kind := types[path.Ext(r.URL.Path)]; kind != "" {
			header.Set("Content-Type", kind)
		}
		h.files.ServeHTTP(w, r)
	}
}

// ask passes on what the page asks. It refuses what other sites send by a visitor's browser.
func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	node, isNode := strings.CutPrefix(r.URL.Path, "/v1/nodes/")
	asks := r.Method == http.MethodGet && (lists[r.URL.Path] || isNode && node != "" && !strings.Contains(node, "/"))
	if r.Method == http.MethodPost { // it changes nothing
		asks = r.URL.Path == "/v1/whatif"
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "cross-site" || site == "same-site":
		httpjson.WriteError(w, httpjson.Errorf(http.StatusForbidden, "requests of other sites are not served"))
	case asks:
		h.api.ServeHTTP(w, r)
	default:
		httpjson.WriteError(w, httpjson.Errorf(http.StatusNotFound,
			"the page does not ask %s \"%s\": ask on the server's other ports", r.Method, httpjson.Clip(r.URL.Path)))
	}
}

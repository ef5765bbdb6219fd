package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
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

const (
	nodePrefix = "/v1/nodes/"
	whatIfPath = "/v1/whatif"
)

// Handler serves the page, and passes on what it asks. Make one with New.
type Handler struct {
	api   http.Handler
	files map[string]file
}

type file struct {
	content     []byte
	contentType string
	tag         string
	forever     bool // its name changes with its content
}

// New returns a Handler that passes on to api what the page asks.
func New(api http.Handler) *Handler {
	h := &Handler{api: api, files: map[string]file{}}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		h.files[strings.TrimPrefix(name, "dist")] = file{
			content: content, contentType: contentType(name), tag: `"` + hex.EncodeToString(sum[:8]) + `"`,
			forever: strings.HasPrefix(name, "dist/assets/"),
		}
		return nil
	})
	if err != nil {
		panic(err) // they are in the binary
	}
	h.files["/"] = h.files["/index.html"]
	return h
}

// contentType is by the name: what the machine's own tables say of scripts is not always right.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	default:
		return mime.TypeByExtension(path.Ext(name))
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", policy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		httpjson.WriteError(w, httpjson.Errorf(http.StatusMethodNotAllowed,
			"the page only reads: send GET here, and all else to the server's other ports"))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		h.ask(w, r)
		return
	}
	f, ok := h.files[r.URL.Path]
	if !ok {
		httpjson.WriteError(w, httpjson.Errorf(http.StatusNotFound, "there is no \"%s\" here: the page is at /",
			httpjson.Clip(r.URL.Path)))
		return
	}
	f.serve(w, r)
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("ETag", f.tag)
	header.Set("Cache-Control", "no-cache")
	if f.forever {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.contentType)
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.content) // an error means that the client has gone
	}
}

// ask passes on what the page asks. It refuses what other sites send by a visitor's browser.
func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	node := strings.TrimPrefix(r.URL.Path, nodePrefix)
	isNode := node != r.URL.Path && node != "" && !strings.Contains(node, "/")
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "cross-site" || site == "same-site":
		httpjson.WriteError(w, httpjson.Errorf(http.StatusForbidden, "requests of other sites are not served"))
	case r.Method != http.MethodGet:
		httpjson.WriteError(w, httpjson.Errorf(http.StatusMethodNotAllowed, "send GET"))
	case r.URL.Path == whatIfPath:
		h.whatIf(w, r)
	case isNode || lists[r.URL.Path]:
		h.api.ServeHTTP(w, r)
	default:
		httpjson.WriteError(w, httpjson.Errorf(http.StatusNotFound,
			"the page does not ask for \"%s\": ask on the server's other ports", httpjson.Clip(r.URL.Path)))
	}
}

package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

//go:embed page
var pageFiles embed.FS

// contentPolicy lets the page load what this server serves and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page is what a visitor sees: both runs, to be replayed, and the cluster as it is, with its switches.
type page struct {
	tally    *tally
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup

	mu        sync.Mutex // guards what follows
	phase     string
	links     []link
	recording recording
	churn     *churn // nil until both runs are over
}

// link is a page elsewhere.
type link struct {
	Text string `json:"text"`
	URL  string `json:"url"`
}

// pageState is the cluster as it is, for the page.
type pageState struct {
	Phase    string     `json:"phase"`
	Links    []link     `json:"links"`
	Runs     int        `json:"runs"` // that are over
	Nodes    [][]int    `json:"nodes"`
	Waiting  int        `json:"waiting"`
	Switches bool       `json:"switches"` // can be flipped
	Is       controls   `json:"is"`
	Wished   controls   `json:"wished"`
	History  []sample   `json:"history"`
	Size     [2]float64 `json:"size"` // CPUs of a node and of a pod
}

func newPage(t *tally) *page {
	return &page{tally: t, phase: "the first run is about to start", links: []link{}, recording: newRecording()}
}

// serve serves the page on loopback until stop.
func (p *page) serve(ctx context.Context) (err error) {
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	p.server = &http.Server{Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second}
	p.serving.Go(func() { _ = p.server.Serve(p.listener) })
	return nil
}

func (p *page) stop() {
	if p.server != nil {
		_ = p.server.Close()
	}
	p.serving.Wait()
}

func (p *page) url() string { return "http://" + p.listener.Addr().String() + "/" }

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	for path, file := range map[string]string{"/{$}": "index.html", "/page.js": "page.js", "/page.css": "page.css"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, pageFiles, "page/"+file)
		})
	}
	mux.HandleFunc("GET /state.json", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.state()) })
	mux.HandleFunc("GET /recording.json", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		writeJSON(w, p.recording)
	})
	mux.HandleFunc("POST /switch", p.flip)
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	return p.guard(http.NewCrossOriginProtection().Handler(mux))
}

// guard keeps out other sites' pages that a browser has open: they use another host name, or come from another origin.
func (p *page) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != p.listener.Addr().String() {
			http.Error(w, "this page is at "+p.url()+" only", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Security-Policy", contentPolicy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func (p *page) flip(w http.ResponseWriter, r *http.Request) {
	var wished controls
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&wished); err != nil {
		http.Error(w, `send {"churn": true, "behind": false}: `+err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	c := p.churn
	p.mu.Unlock()
	if c == nil {
		http.Error(w, "the runs are not over yet", http.StatusConflict)
		return
	}
	c.wish(wished)
	w.WriteHeader(http.StatusNoContent)
}

func (p *page) state() pageState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := pageState{
		Phase: p.phase, Links: p.links, Runs: len(p.recording.Runs), History: []sample{},
		Size: [2]float64{nodeCPUs, podCPUs},
	}
	s.Nodes, s.Waiting = p.tally.now()
	if p.churn != nil {
		s.Switches = true
		s.Is, s.Wished, s.History = p.churn.state()
	}
	return s
}

// show says what is under way.
func (p *page) show(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
}

// link adds a link to a page elsewhere.
func (p *page) link(text, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, link{Text: text, URL: url})
}

// add adds a run that is over to the replay.
func (p *page) add(r run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording.Runs = append(p.recording.Runs, r)
}

// handOver lets visitors flip the switches.
func (p *page) handOver(c *churn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.churn, p.phase = c, "both runs are over; it is yours"
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil && !errors.Is(err, net.ErrClosed) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

package openapi

import (
	"bytes"
	"cmp"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// Found collects violations, each once.
type Found struct {
	mu  sync.Mutex // guards all
	all map[string]string
}

// place is where in a list something is. All of its entries are alike.
var place = regexp.MustCompile(`/[0-9]+\b`)

// Add adds violations.
func (f *Found) Add(violations ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range violations {
		if f.all == nil {
			f.all = map[string]string{}
		}
		if key := place.ReplaceAllString(v, "/*"); f.all[key] == "" {
			f.all[key] = v
		}
	}
}

// Take returns what was added since it was called last, in order.
func (f *Found) Take() (violations []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.all {
		violations = append(violations, v)
	}
	f.all = nil
	slices.Sort(violations)
	return violations
}

// Report fails a test by what is found until it ends.
func (f *Found) Report(t testing.TB) {
	t.Cleanup(func() {
		for _, v := range f.Take() {
			t.Errorf("not as pkg/http/rest/openapi.yaml has it: %s", v)
		}
	})
}

// Transport holds what is sent through it, and what comes back, against the document of the source tree.
type Transport struct {
	Base  http.RoundTripper
	Found *Found
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	doc, err := Read()
	if err != nil {
		return nil, err
	}
	e := &Exchange{Method: r.Method, URL: r.URL, Type: r.Header.Get("Content-Type")}
	if r, e.Asked, err = copyBody(r); err != nil {
		return nil, err
	}
	response, err := t.Base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	e.Status, e.Header = response.StatusCode, response.Header
	kind, _, _ := mime.ParseMediaType(e.Header.Get("Content-Type"))
	switch kind {
	case "application/x-ndjson":
		e.Streams = true
		response.Body = &stream{ReadCloser: response.Body, line: func(line []byte) { t.Found.Add(doc.Line(line)...) }}
	default:
		var broken error
		e.Answer, broken = io.ReadAll(response.Body)
		// What came of a broken one is for the asker to judge.
		response.Body = &rest{io.MultiReader(bytes.NewReader(e.Answer), failing{cmp.Or(broken, io.EOF)}), response.Body}
		e.Streams = broken != nil
	}
	t.Found.Add(doc.Violations(e)...)
	return response, nil
}

// copyBody returns the body of a request, and the request as it is to be sent.
func copyBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil, nil
	}
	content, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	sent := r.Clone(r.Context())
	sent.Body = io.NopCloser(bytes.NewReader(content))
	return sent, content, err
}

// rest is a body that was read already.
type rest struct {
	io.Reader
	io.Closer
}

// failing is a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stream is a body of lines. They are looked at as they are read.
type stream struct {
	io.ReadCloser
	line  func(line []byte)
	begun []byte // a line that is not over
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.begun = append(s.begun, p[:n]...)
	for {
		line, left, over := bytes.Cut(s.begun, []byte("\n"))
		if !over {
			return n, err
		}
		s.begun = left
		s.line(line)
	}
}

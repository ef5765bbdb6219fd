package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
)

// ask sends a request to the server as a caller, and has the answer decoded.
func (p *process) ask(ctx context.Context, caller, method, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	who := auth.As(ctx, &user.DefaultInfo{Name: caller, Groups: []string{user.AllAuthenticated}})
	r, err := http.NewRequestWithContext(who, method, "http://globalreserve"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := p.asked.RoundTrip(r)
	if err != nil {
		return err
	}
	said, err := readAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return &statusError{response.StatusCode, string(bytes.TrimSpace(said))}
	}
	return json.Unmarshal(said, answer)
}

// statusError is an answer that is none to the question.
type statusError struct {
	status int
	said   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.said) }

// undone reports whether an error says that nothing was done, and that nothing will be.
func undone(err error) bool {
	status := statusOf(err)
	return status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
}

// refusedAsWrong reports whether an error says that what was asked makes no sense.
func refusedAsWrong(err error) bool {
	return statusOf(err)/100 == 4 && !undone(err)
}

// statusOf returns the status of an answer that is none to the question, 0 where there is none.
func statusOf(err error) int {
	var e *statusError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

// front is what a process answers. It implements http.RoundTripper.
type front struct{ *process }

// RoundTrip implements http.RoundTripper. A client that gives up ends its request, and does not wait for that.
func (f front) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.RequestURI = r.URL.RequestURI()
	recorder := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.app.Handler().ServeHTTP(recorder, asked)
	}()
	select {
	case <-done:
		return recorder.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// service is how the API server reaches the servers: any of them. It implements http.RoundTripper.
type service struct {
	cluster *Cluster

	mu     sync.Mutex // guards random
	random *rand.Rand
}

var errNobody = errors.New("connection refused: no server runs")

// apiServer is the name that the API server shows to webhooks.
const apiServer = "kube-apiserver-kubelet-client"

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	p := s.cluster.anyProcess(s.random)
	s.mu.Unlock()
	if p == nil {
		return nil, errNobody
	}
	who := &user.DefaultInfo{Name: apiServer, Groups: []string{user.AllAuthenticated}}
	return p.asked.RoundTrip(r.WithContext(auth.As(r.Context(), who)))
}

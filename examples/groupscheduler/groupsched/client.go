package groupsched

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

const (
	callTimeout    = 10 * time.Second // of one call; a bind writes to the API server
	reserveTries   = 3                // of the same reserve, when its answer does not arrive
	reservePause   = 200 * time.Millisecond
	answerLimit    = 16 << 20 // bytes of an answer that are read
	quotedBodySize = 300      // bytes of an unexpected answer that an error quotes
)

// The reasons of a Rejection that this scheduler tells apart.
const (
	reasonInsufficientResource = "InsufficientResource"
	reasonClaimedElsewhere     = "ClaimedElsewhere"
)

// GroupRequest is the body of POST /reserve and POST /unreserve. Pods[i] goes to Nodes[i].
type GroupRequest struct {
	SchedulerName string
	Pods          []*corev1.Pod
	Nodes         []string
	// TTLSeconds is how long the room is held for pods that do not get bound.
	TTLSeconds int64 `json:",omitempty"`
	// RequestID makes a repeat of the same request safe: it gets the first answer.
	RequestID string `json:",omitempty"`
}

// GroupAnswer is the answer. It arrives with status 200 for a refusal too.
type GroupAnswer struct {
	// FailedPods names the pods without room; empty means the whole request was granted.
	FailedPods []string
	Error      string
	Revision   uint64
	// Rejections tell of each failed pod what the ledger has on the node it was to go to.
	Rejections []Rejection
}

// Granted tells whether all of the request was granted.
func (a *GroupAnswer) Granted() bool { return len(a.FailedPods) == 0 && a.Error == "" }

// Rejection explains one failed pod. Amounts are milli-CPU for cpu, else the resource's own unit.
type Rejection struct {
	Namespace, Pod, Node string
	Reason               string
	Resource             string
	Requested, Free      int64
	// ClaimedOn is the node where the pod holds room already.
	ClaimedOn string
	Message   string
}

// reserver talks to GlobalReserve. It needs no more than net/http.
type reserver struct {
	url  string
	http *http.Client
}

func newReserver(url string) *reserver {
	return &reserver{url: strings.TrimSuffix(url, "/"), http: &http.Client{Timeout: callTimeout}}
}

// reserve asks for the room of a whole group. A lost answer leaves open whether the room is held, so
// the same request is sent again: its RequestID makes the server answer as it did the first time.
func (r *reserver) reserve(ctx context.Context, request *GroupRequest) (*GroupAnswer, error) {
	for try := 1; ; try++ {
		answer := &GroupAnswer{}
		err := r.post(ctx, "/reserve", request, answer)
		var status *statusError
		refused := errors.As(err, &status) && status.code < http.StatusInternalServerError
		if err == nil || refused || try == reserveTries {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(reservePause):
		}
	}
}

// unreserve gives room back. Pods that hold none are no error.
func (r *reserver) unreserve(ctx context.Context, request *GroupRequest) error {
	answer := &GroupAnswer{}
	if err := r.post(ctx, "/unreserve", request, answer); err != nil {
		return err
	}
	if !answer.Granted() {
		return fmt.Errorf("room was not given back: %s (pods %s)", answer.Error, strings.Join(answer.FailedPods, ", "))
	}
	return nil
}

// bind lets the server bind a pod by the verb that kube-scheduler uses too.
func (r *reserver) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	request := extenderv1.ExtenderBindingArgs{
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: node,
	}
	var answer extenderv1.ExtenderBindingResult
	if err := r.post(ctx, "/bind", &request, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// statusError is an answer that is not 200: the request made no sense to the server, or the server
// cannot answer now.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func (r *reserver) post(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	response, err := r.http.Do(post)
	if err != nil {
		return fmt.Errorf("ask GlobalReserve: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("ask GlobalReserve: POST %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		quoted := content[:min(len(content), quotedBodySize)]
		return &statusError{
			code: response.StatusCode,
			text: fmt.Sprintf("GlobalReserve answered POST %s with %s: %s", path, response.Status, quoted),
		}
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("the answer of GlobalReserve to POST %s: %w", path, err)
	}
	return nil
}

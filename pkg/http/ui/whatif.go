package ui

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// maxWithout is how many pods one question may assume gone.
const maxWithout = 100

// whatIf turns GET /v1/whatif?pod=namespace/name&without=namespace/name into the question it stands for: would there be
// capacity for a pod if others were gone? ?node= asks it of one node.
func (h *Handler) whatIf(w http.ResponseWriter, r *http.Request) {
	body, err := newQuestion(r.URL.Query())
	if err != nil {
		httpjson.WriteError(w, err)
		return
	}
	post := r.Clone(r.Context())
	post.Method, post.URL.RawQuery, post.RequestURI = http.MethodPost, "", whatIfPath
	post.Body, post.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	post.Header.Set("Content-Type", "application/json")
	h.api.ServeHTTP(w, post)
}

func newQuestion(q url.Values) ([]byte, error) {
	type name struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type pod struct {
		Metadata name `json:"metadata"`
	}
	type gone struct{ Namespace, Name string }
	var question struct {
		Pods    []pod
		Nodes   []string `json:",omitempty"`
		Without []gone
	}
	if len(q["without"]) > maxWithout {
		return nil, httpjson.Errorf(http.StatusBadRequest, "without is given %d times: give it at most %d times",
			len(q["without"]), maxWithout)
	}
	namespace, podName, ok := podOf(q.Get("pod"))
	if !ok {
		return nil, httpjson.Errorf(http.StatusBadRequest, "pod \"%s\" is not namespace/name", httpjson.Clip(q.Get("pod")))
	}
	question.Pods = []pod{{name{namespace, podName}}}
	for _, text := range q["without"] {
		namespace, podName, ok := podOf(text)
		if !ok {
			return nil, httpjson.Errorf(http.StatusBadRequest, "without \"%s\" is not namespace/name", httpjson.Clip(text))
		}
		question.Without = append(question.Without, gone{namespace, podName})
	}
	if node := q.Get("node"); node != "" {
		question.Nodes = []string{node}
	}
	return json.Marshal(question)
}

func podOf(text string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != ""
}

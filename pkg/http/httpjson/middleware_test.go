package httpjson

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHandleAndRecover runs both wrappers, as the server has them, around handlers that end in every way.
func TestHandleAndRecover(t *testing.T) {
	flush := func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }
	tests := map[string]struct {
		serve  func(w http.ResponseWriter) error
		code   int // what is observed
		panics bool
		aborts bool
	}{
		"answer":       {serve: func(w http.ResponseWriter) error { Write(w, 404, "x"); return nil }, code: 404},
		"error":        {serve: func(http.ResponseWriter) error { return Errorf(409, "taken") }, code: 409},
		"nothing said": {serve: func(http.ResponseWriter) error { return nil }, code: 200},
		"body only": {
			serve: func(w http.ResponseWriter) error { _, err := io.WriteString(w, "x"); return err }, code: 200,
		},
		"flush only": {serve: flush, code: 200},
		"panic":      {serve: func(http.ResponseWriter) error { panic("boom") }, code: 500, panics: true},
		"panic after an answer": {
			serve: func(w http.ResponseWriter) error { Write(w, 200, "x"); panic("boom") }, code: 200,
			panics: true, aborts: true,
		},
		"panic after a flush": {
			serve: func(w http.ResponseWriter) error { _ = flush(w); panic("boom") }, code: 200,
			panics: true, aborts: true,
		},
		"wanted abort": {serve: func(http.ResponseWriter) error { panic(http.ErrAbortHandler) }, code: 500, aborts: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var seen []int
			var values []any
			var stack string
			observe := func(verb string, code int, took time.Duration) {
				assert.Equal(t, "bind", verb)
				assert.GreaterOrEqual(t, took, time.Duration(0))
				seen = append(seen, code)
			}
			report := func(_ *http.Request, value any, s []byte) { values, stack = append(values, value), string(s) }
			serveIt := func(w http.ResponseWriter, _ *http.Request) error { return tt.serve(w) }
			h := Recover(report, Handle("bind", observe, serveIt))
			w := httptest.NewRecorder()
			serve := func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil)) }
			if tt.aborts {
				assert.PanicsWithValue(t, http.ErrAbortHandler, serve)
			} else {
				require.NotPanics(t, serve)
				assert.Equal(t, tt.code, w.Code)
			}
			assert.Equal(t, []int{tt.code}, seen)
			if tt.panics {
				assert.Equal(t, []any{"boom"}, values)
				assert.Contains(t, stack, "TestHandleAndRecover")
				assert.NotContains(t, w.Body.String(), "boom", "the cause is for the log")
			} else {
				assert.Empty(t, values)
			}
		})
	}
}

func TestRouter(t *testing.T) {
	router := NewRouter()
	router.Handler(http.MethodPost, "/bind", http.NotFoundHandler())
	tests := map[string]struct {
		method, path string
		status       int
		text         string
	}{
		"unknown path": {"GET", "/nothing", 404, `nothing is served at "/nothing": GET /openapi.yaml lists the routes`},
		"long path":    {"GET", "/" + strings.Repeat("a", 5000), 404, "aaa...\""},
		"odd path":     {"GET", "/%00%22", 404, `"/\x00\""`},
		"wrong method": {"GET", "/bind", 405, `method GET is not allowed on "/bind": use POST`},
		"no options":   {"OPTIONS", "/bind", 405, `method OPTIONS is not allowed on "/bind": use POST`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			assert.Equal(t, tt.status, w.Code)
			var answer ErrorBody
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
			assert.Equal(t, tt.status, answer.Status)
			assert.Contains(t, answer.Error, tt.text)
			assert.Less(t, len(answer.Error), 300)
			assert.NotContains(t, w.Header().Get("Allow"), "OPTIONS")
		})
	}
}

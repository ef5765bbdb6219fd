package httpjson

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type observed struct {
	verb string
	code int
}

type observer struct{ seen []observed }

func (o *observer) ObserveRequest(verb string, code int, took time.Duration) {
	if took >= 0 {
		o.seen = append(o.seen, observed{verb, code})
	}
}

// TestInstrumentAndRecover runs both wrappers, in both orders, around handlers that end in every way.
func TestInstrumentAndRecover(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		code    int // what is observed
		panics  bool
		aborts  bool
	}{
		"answer":                {handler: func(w http.ResponseWriter, _ *http.Request) { Write(w, 404, "x") }, code: 404},
		"nothing said":          {handler: func(http.ResponseWriter, *http.Request) {}, code: 200},
		"body only":             {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, code: 200},
		"flush only":            {handler: func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, code: 200},
		"panic":                 {handler: func(http.ResponseWriter, *http.Request) { panic("boom") }, code: 500, panics: true},
		"panic after an answer": {handler: func(w http.ResponseWriter, _ *http.Request) { Write(w, 200, "x"); panic("boom") }, code: 200, panics: true, aborts: true},
		"panic after a flush": {handler: func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic("boom")
		}, code: 200, panics: true, aborts: true},
		"wanted abort": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, code: 500, aborts: true},
	}
	for name, tt := range tests {
		for _, order := range []string{"recover outside", "recover inside"} {
			t.Run(name+", "+order, func(t *testing.T) {
				obs := &observer{}
				var values []any
				var stack string
				report := func(_ *http.Request, value any, s []byte) { values, stack = append(values, value), string(s) }
				var h http.Handler
				if order == "recover outside" {
					h = Recover(report, Instrument("bind", obs, tt.handler))
				} else {
					h = Instrument("bind", obs, Recover(report, tt.handler))
				}
				w := httptest.NewRecorder()
				serve := func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil)) }
				if tt.aborts {
					assert.PanicsWithValue(t, http.ErrAbortHandler, serve)
				} else {
					require.NotPanics(t, serve)
					assert.Equal(t, tt.code, w.Code)
				}
				assert.Equal(t, []observed{{"bind", tt.code}}, obs.seen)
				if tt.panics {
					assert.Equal(t, []any{"boom"}, values)
					assert.Contains(t, stack, "TestInstrumentAndRecover")
				} else {
					assert.Empty(t, values)
				}
			})
		}
	}
}

func TestServerLivesOnAfterPanic(t *testing.T) {
	server := httptest.NewServer(Recover(func(*http.Request, any, []byte) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("boom")
		}
		Write(w, http.StatusOK, "fine")
	})))
	defer server.Close()
	for _, path := range []string{"/panic", "/", "/panic"} {
		resp, err := server.Client().Get(server.URL + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if path == "/" {
			assert.JSONEq(t, `"fine"`, string(body))
			continue
		}
		assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
		var answer ErrorBody
		require.NoError(t, json.Unmarshal(body, &answer))
		assert.NotContains(t, answer.Error, "boom", "the cause is for the log")
	}
}

func TestRouterHooks(t *testing.T) {
	router := httprouter.New()
	router.NotFound = NotFound()
	router.MethodNotAllowed = MethodNotAllowed()
	router.HandleOPTIONS = false
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

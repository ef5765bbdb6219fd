package openapi

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const document = `
openapi: 3.0.3
info: {title: t, version: v1}
paths:
  /things:
    get:
      parameters:
      - {name: limit, in: query, schema: {type: integer, minimum: 1}}
      - {name: of, in: query, required: true, schema: {type: string}}
      responses:
        "200": {description: d, content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}
        "400": {description: d, content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}}
    post:
      requestBody:
        {content: {application/json: {schema: {type: object, required: [Name], properties: {Name: {type: string}}}}}}
      responses:
        "200": {description: d, content: {text/plain: {schema: {type: string}}}}
        "400": {description: d, content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}}
  /things/{name}:
    get:
      parameters: [{name: name, in: path, required: true, schema: {type: string}}]
      responses:
        "200": {description: d, content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}
components:
  schemas:
    Error: {type: object, required: [Error], properties: {Error: {type: string}}}
    Base: {type: object, properties: {Kind: {type: string, enum: [a, b]}}}
    Thing:
      required: [Name]
      allOf:
      - $ref: "#/components/schemas/Base"
      - type: object
        properties:
          Name: {type: string}
          Parts: {type: array, items: {$ref: "#/components/schemas/Base"}}
          Sizes: {type: object, additionalProperties: {type: integer}}
          Since: {type: string, format: date-time}
          Any: {type: object}
`

// TestViolations has an exchange for everything that may be wrong, and one that is right for each.
func TestViolations(t *testing.T) {
	doc, err := Parse([]byte(document))
	require.NoError(t, err)
	const one, refusal = `{"Name": "n"}`, `{"Error": "e"}`
	for name, tt := range map[string]struct {
		method, url, asked string // the usual ones are GET, and /things?of=x
		status             int
		answer             string
		want               string // what the only violation contains, or nothing
	}{
		"right": {
			url:    "/things?limit=3&of=x",
			answer: `{"Name": "n", "Kind": "a", "Parts": [{"Kind": "b"}], "Sizes": {"x": 1}, "Any": {"y": 2}, "Since": "2026-01-02T03:04:05Z"}`,
		},
		"right, by name":       {url: "/things/n", answer: one},
		"an error":             {status: 400, answer: refusal},
		"an error of no route": {url: "/nothing", status: 404, answer: refusal},
		"of no method":         {method: http.MethodDelete, url: "/things", status: 405, answer: refusal},
		"no route": {
			url: "/nothing", answer: one,
			want: "GET /nothing: the route is not in the document, and was answered with 200",
		},
		"an error that is none": {url: "/nothing", status: 404, answer: `{}`, want: `property "Error" is missing`},
		"a status": {
			status: 503, answer: refusal,
			want: "GET /things, answer 503: the status is not in the document",
		},
		"a type": {answer: `{"Name": 1}`, want: "GET /things, answer 200: /Name: value must be a string"},
		"a type, deep": {
			url: "/things/n", answer: `{"Name": "n", "Sizes": {"x": "1"}}`,
			want: "GET /things/{name}, answer 200: /Sizes/x: value must be an integer",
		},
		"an enum": {
			answer: `{"Name": "n", "Parts": [{"Kind": "c"}]}`,
			want:   "/Parts/0/Kind: value is not one of the allowed values",
		},
		"a format":         {answer: `{"Name": "n", "Since": "today"}`, want: "/Since: "},
		"null":             {answer: `{"Name": "n", "Parts": null}`, want: "/Parts: Value is not nullable"},
		"required":         {answer: `{}`, want: `/Name: property "Name" is missing`},
		"an unknown field": {answer: `{"Name": "n", "More": 1}`, want: "/More: the field is not in the document"},
		"an unknown field, deep": {
			answer: `{"Name": "n", "Parts": [{"More": 1}]}`,
			want:   "/Parts/0/More: the field is not in the document",
		},
		"no JSON":                {answer: `ok`, want: "not JSON"},
		"asked, in another case": {method: http.MethodPost, url: "/things", asked: `{"name": "n"}`},
		"asked, required":        {url: "/things", answer: one, want: "parameter of is missing"},
		"asked, a parameter":     {url: "/things?of=x&or=y", answer: one, want: "there is no parameter or"},
		"asked, its type":        {url: "/things?of=x&limit=all", answer: one, want: "limit: /: value must be an integer"},
		"asked, its value":       {url: "/things?of=x&limit=0", answer: one, want: "limit: /: number must be at least 1"},
		"asked and refused":      {url: "/things?of=x&limit=0", status: 400, answer: refusal},
		"asked, a body": {
			method: http.MethodPost, url: "/things", asked: `{}`,
			want: "POST /things: the document does not allow what was asked, and it was answered with 200: /Name",
		},
		"asked, a body, answer": {
			method: http.MethodPost, url: "/things", asked: one, answer: one,
			want: "Content-Type application/json is not in the document",
		},
		"asked and refused, a body": {method: http.MethodPost, url: "/things", asked: `{`, status: 400, answer: refusal},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := url.Parse(cmp.Or(tt.url, "/things?of=x"))
			require.NoError(t, err)
			e := &Exchange{
				Method: cmp.Or(tt.method, http.MethodGet), URL: address, Type: "application/json", Asked: []byte(tt.asked),
				Status: cmp.Or(tt.status, http.StatusOK), Answer: []byte(tt.answer),
				Header: http.Header{"Content-Type": {"application/json"}},
			}
			if tt.answer == "" {
				e.Header.Set("Content-Type", "text/plain; charset=utf-8")
			}
			got := doc.Violations(e)
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Contains(t, got[0], tt.want)
		})
	}
}

// TestProxy has a server that answers what the document of the source tree does not have. The stream is looked at while
// it is read.
func TestProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, kind := `{"Revision": "1", "Term": 2}`, "application/json"
		if r.URL.Path == "/v1/watch" {
			body, kind = "{\"Instance\": 1}\n", "application/x-ndjson"
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	reports := &reports{TB: t}
	address := Proxy(reports, server.URL)
	for _, path := range []string{"/v1/revision", "/v1/revision", "/v1/watch"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	reports.end()
	all := strings.Join(reports.errors, "\n")
	for _, want := range []string{
		"GET /v1/revision, answer 200: /Revision: value must be an integer",
		"GET /v1/revision, answer 200: /Term: the field is not in the document",
		"GET /v1/watch, line: /Instance: value must be a string",
	} {
		assert.Contains(t, all, want)
	}
	assert.Len(t, reports.errors, 3, "each once")
}

// reports is a test that fails and whose end can be waited for.
type reports struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *reports) Errorf(_ string, args ...any) { r.errors = append(r.errors, args[0].(string)) }

func (r *reports) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *reports) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

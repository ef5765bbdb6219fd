package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// budget is how many bytes the page may have in all, compressed: it comes through port forwards and slow networks.
const budget = 120_000

func serve(t *testing.T, request *http.Request) (answer *httptest.ResponseRecorder, asked []string) {
	t.Helper()
	api := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	})
	answer = httptest.NewRecorder()
	New(api).ServeHTTP(answer, request)
	return answer, asked
}

// Everything that the page needs is in the binary, by names that change with the content, and small.
func TestPage(t *testing.T) {
	page, _ := serve(t, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusOK, page.Code)
	assert.Equal(t, "no-cache", page.Header().Get("Cache-Control"))
	assert.Equal(t, policy, page.Header().Get("Content-Security-Policy"))
	assert.Equal(t, "nosniff", page.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "no-referrer", page.Header().Get("Referrer-Policy"))
	html := page.Body.String()
	assert.NotContains(t, html, "<style")
	assert.NotContains(t, html, "style=")
	assert.NotRegexp(t, `<script[^>]*>[^<]`, html, "a script in the page itself would not run")
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, html)
	names := regexp.MustCompile(`(?:src|href)="\./(assets/[^"]+)"`).FindAllStringSubmatch(html, -1)
	require.Len(t, names, 2)
	for _, name := range names {
		part, _ := serve(t, httptest.NewRequest(http.MethodGet, "/"+name[1], http.NoBody))
		require.Equal(t, http.StatusOK, part.Code, name[1])
		assert.Contains(t, part.Header().Get("Cache-Control"), "immutable")
		assert.Regexp(t, "^text/(javascript|css)", part.Header().Get("Content-Type"))
	}
}

func TestBudget(t *testing.T) {
	var packed bytes.Buffer
	require.NoError(t, fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		require.NoError(t, err)
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
		return w.Close()
	}))
	t.Logf("the page has %d bytes", packed.Len())
	assert.Less(t, packed.Len(), budget)
	assert.Greater(t, packed.Len(), 10_000, "this is not the page")
}

// Only what the page asks is passed on, which changes nothing.
func TestRoutes(t *testing.T) {
	for target, passed := range map[string]string{
		"GET /v1/nodes?limit=1":      "GET /v1/nodes?limit=1 ",
		"GET /v1/nodes/node-1":       "GET /v1/nodes/node-1 ",
		"GET /v1/watch?revision=5":   "GET /v1/watch?revision=5 ",
		"POST /v1/whatif":            "POST /v1/whatif ",
		"GET /v1/whatif":             "",
		"GET /v1/nodes/node-1/x":     "",
		"GET /v1/nodes/../../filter": "",
		"GET /v1/explain?pod=a":      "",
		"GET /debug/ledger":          "",
		"GET /debug/diff":            "",
		"GET /metrics":               "",
		"GET /assets/":               "",
		"GET /assets/none.js":        "",
		"POST /":                     "",
		"POST /reserve":              "",
		"POST /v1/nodes":             "",
		"DELETE /v1/nodes":           "",
		"HEAD /v1/nodes":             "",
		"OPTIONS /v1/nodes":          "",
	} {
		method, path, _ := strings.Cut(target, " ")
		answer, asked := serve(t, httptest.NewRequest(method, path, http.NoBody))
		if passed != "" {
			assert.Equal(t, []string{passed}, asked, target)
			continue
		}
		assert.Empty(t, asked, target)
		assert.GreaterOrEqual(t, answer.Code, 400, target)
		assert.Empty(t, answer.Header().Get("Cache-Control"), target)
	}
}

// Another site cannot have a visitor's browser ask.
func TestOtherSites(t *testing.T) {
	for site, status := range map[string]int{
		"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden,
		"same-origin": http.StatusOK, "": http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/nodes", http.NoBody)
		r.Header.Set("Sec-Fetch-Site", site)
		answer, _ := serve(t, r)
		assert.Equal(t, status, answer.Code, site)
	}
}

//go:build e2e

package ui

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
	"github.com/globalreserve/globalreserve/test/openapi"
)

// documented is where a page is asked, so that what it asks and is answered is held against the OpenAPI document. That
// has neither the page's files nor the GET that stands for a question.
type documented struct {
	*httptest.Server
	off atomic.Bool
}

func newDocumented(t *testing.T, page string) *documented {
	t.Helper()
	to := func(server string) http.Handler {
		target, err := url.Parse(server)
		require.NoError(t, err)
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.FlushInterval = -1
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		return proxy
	}
	files, api, d := to(page), to(openapi.Proxy(t, page)), &documented{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case d.off.Load():
			panic(http.ErrAbortHandler)
		case strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != testbed.WhatIfPath:
			api.ServeHTTP(w, r)
		default:
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

// cut ends all connections, and answers on no new one until mend.
func (d *documented) cut() {
	d.off.Store(true)
	d.CloseClientConnections()
}

func (d *documented) mend() { d.off.Store(false) }

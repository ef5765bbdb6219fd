//go:build e2e

package ui

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
	"github.com/globalreserve/globalreserve/test/openapi"
)

// documented is where a page is to be asked, so that what it asks and is answered is held against the OpenAPI document.
// That has neither the page's files nor the GET that stands for a question.
func documented(t *testing.T, page string) (address string) {
	t.Helper()
	to := func(server string) http.Handler {
		target, err := url.Parse(server)
		require.NoError(t, err)
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.FlushInterval = -1
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		return proxy
	}
	files, api := to(page), to(openapi.Proxy(t, page))
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != testbed.WhatIfPath {
			api.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		between.CloseClientConnections()
		between.Close()
	})
	return between.URL
}

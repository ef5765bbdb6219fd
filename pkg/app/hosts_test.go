package app

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a web page of another site has a browser send is refused, also where the site's name points to loopback.
func TestOtherSitesAreRefused(t *testing.T) {
	handler := notForBrowsers([]string{"ledger.example.com"}, http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
	}))
	tests := map[string]struct {
		host, local string
		header      map[string]string
		want        int
	}{
		"localhost":               {host: "localhost:23456", local: "127.0.0.1", want: 200},
		"an address":              {host: "127.0.0.1:23456", local: "127.0.0.1", want: 200},
		"an address of IPv6":      {host: "[::1]:23456", local: "::1", want: 200},
		"no port":                 {host: "127.0.0.1", local: "127.0.0.1", want: 200},
		"a name that is given":    {host: "ledger.example.com:23456", local: "127.0.0.1", want: 200},
		"a name that points here": {host: "evil.example.com:23456", local: "127.0.0.1", want: 421},
		"a name like localhost":   {host: "localhost.evil.example.com", local: "::1", want: 421},
		"a Service":               {host: "globalreserve.globalreserve-system.svc:23456", local: "10.0.0.7", want: 200},
		"a page of another site": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403,
		},
		"a page of another origin": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Origin": "https://evil.example.com"}, want: 403,
		},
		"a page of another, sandbox": {
			host: "127.0.0.1:23456", local: "127.0.0.1",
			header: map[string]string{"Origin": "null"}, want: 403,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/bind", http.NoBody)
			r.Host = tt.host
			for key, value := range tt.header {
				r.Header.Set(key, value)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(tt.local)}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			assert.Equal(t, tt.want, w.Code, w.Body)
		})
	}
}

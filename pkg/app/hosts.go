package app

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

var errCrossOrigin = errors.New("requests of other sites are not served")

// notForBrowsers refuses requests that pages of other sites send by a browser, where callers need not say who they are.
// A site can point its own name to 127.0.0.1 (DNS rebinding): on loopback, requests have to be for localhost, for an
// address, or for one of these names.
func notForBrowsers(names []string, next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case onLoopback(r) && !local(r.Host) && !slices.Contains(names, hostOf(r.Host)):
			httpjson.WriteError(w, httpjson.Errorf(http.StatusMisdirectedRequest,
				"the Host \"%s\" is not this server's: ask for localhost or its address, or give the name with --host-names",
				httpjson.Clip(r.Host)))
		case origins.Check(r) != nil:
			httpjson.WriteError(w, httpjson.Errorf(http.StatusForbidden, "%s", errCrossOrigin))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// onLoopback reports whether a request came by the loopback interface.
func onLoopback(r *http.Request) bool {
	address, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// local reports whether a Host says localhost, or an address: nobody else can point such a name here.
func local(host string) bool {
	host = hostOf(host)
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}

// hostOf is a Host without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

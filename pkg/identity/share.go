package identity

import (
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Share names whom a request is counted for where callers share something fairly: the caller, or the address of those
// who need not say who they are.
func Share(r *http.Request) string {
	caller := Of(r.Context())
	if name := caller.GetName(); name != user.Anonymous && !Trusted(caller) {
		return "user " + name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address " + host
}

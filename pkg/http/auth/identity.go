// Package auth says who sent a request, and what it may ask. Of is the one place to ask who it is.
//
// # Where callers come from
//
//	TLS (Checks.Outside)        a client certificate of --client-ca-file, or a token that the API server knows
//	plain HTTP (Insecure)       nobody is asked: anybody who reaches the port is trusted
//	another server (Forwarded)  the caller that the other server names, and has checked
//	this process (Inside)       trusted
//
// The headers in which another server names a caller are taken off all other requests.
//
// # What they may do
//
// The API server's authorization, mostly RBAC, says so. The server that was asked checks the path, the one that decides
// the rest:
//
//	to ask a path               the method in lower case on that nonResourceURL
//	to act for a scheduler      the verb use on its name in schedulers.globalreserve.io, a resource without objects
//	to reserve in a namespace   the verb reserve on reservations.globalreserve.io in that namespace
//	to plan a drain             the verb patch on nodes, and list on the pods of all namespaces
package auth

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// The headers of the front-proxy convention.
var (
	userHeader   = []string{"X-Remote-User"}
	uidHeader    = []string{"X-Remote-Uid"}
	groupHeader  = []string{"X-Remote-Group"}
	extraHeaders = []string{"X-Remote-Extra-"}
)

// headerPrefix is what the names of all of them begin with.
const headerPrefix = "X-Remote-"

var (
	anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	// trusted may do everything. No certificate and no token has its name, see Outside.
	trusted = &user.DefaultInfo{Name: ledger.Trusted}
)

type key struct{}

// Of returns the caller of a request. A caller that is not known is user.Anonymous.
func Of(ctx context.Context) user.Info {
	if caller, ok := ctx.Value(key{}).(user.Info); ok {
		return caller
	}
	return anonymous
}

// Trusted reports whether a caller may do everything: it is in this process, or came by plain HTTP.
func Trusted(caller user.Info) bool { return caller.GetName() == trusted.Name }

// Name is what the caller of a request is called: what it is granted belongs to that name, and counts against its
// limits.
func Name(ctx context.Context) string { return Of(ctx).GetName() }

// Inside is for calls of this process.
func Inside(ctx context.Context) context.Context { return As(ctx, trusted) }

// As returns a context with a caller.
func As(ctx context.Context, caller user.Info) context.Context {
	return context.WithValue(ctx, key{}, caller)
}

// Insecure is for requests that come by plain HTTP: everybody who reaches the port may do everything.
func Insecure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strip(r.Header)
		next.ServeHTTP(w, with(r, trusted))
	})
}

// Forwarded is for requests that another server passed on, which has said who sent them.
func Forwarded(next http.Handler) http.Handler {
	headers, err := headerrequest.New(userHeader, uidHeader, groupHeader, extraHeaders)
	if err != nil {
		panic(err) // they are constants
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, known, err := headers.AuthenticateRequest(r)
		strip(r.Header)
		if err == nil && known {
			r = with(r, response.User)
		}
		next.ServeHTTP(w, r)
	})
}

// Tell writes the caller of a request into the headers of the one that passes it on.
func Tell(ctx context.Context, out *http.Request) {
	strip(out.Header)
	if caller := Of(ctx); caller.GetName() != user.Anonymous {
		transport.SetAuthProxyHeaders(out, caller.GetName(), caller.GetUID(), caller.GetGroups(), caller.GetExtra())
	}
}

func with(r *http.Request, caller user.Info) *http.Request {
	return r.WithContext(As(r.Context(), caller))
}

func strip(h http.Header) {
	for name := range h {
		if len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix) {
			delete(h, name)
		}
	}
}

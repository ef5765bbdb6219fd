// Package identity says who sent a request. Of is the one place to ask.
//
// A server that does not lead passes requests on to the one that does, with the caller in headers, as
// kube-apiserver does for the servers behind it. These headers are believed only from another server;
// whatever else came with them has them taken off, wherever it is answered.
package identity

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
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

var anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

type key struct{}

// Of returns the caller of a request; who is not known is user.Anonymous.
func Of(ctx context.Context) user.Info {
	if caller, ok := ctx.Value(key{}).(user.Info); ok {
		return caller
	}
	return anonymous
}

// Outside is for requests of clients. Who shows a client certificate that the TLS handshake has verified is
// its common name, of the groups that are its organizations.
func Outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strip(r.Header)
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			subject := r.TLS.VerifiedChains[0][0].Subject
			r = with(r, &user.DefaultInfo{Name: subject.CommonName, Groups: subject.Organization})
		}
		next.ServeHTTP(w, r)
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
	return r.WithContext(context.WithValue(r.Context(), key{}, caller))
}

func strip(h http.Header) {
	for name := range h {
		if len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix) {
			delete(h, name)
		}
	}
}

package auth

import (
	"net"
	"net/http"
	"net/netip"

	"k8s.io/apiserver/pkg/authentication/user"
)

// ownNetwork is the part of an IPv6 address, in bits, that a client is assigned: it can choose the rest.
const ownNetwork = 64

// Share returns the name that a request counts for where callers share something fairly: the caller, or the address of
// a caller that need not say who it is. Of IPv6 that is the network.
func Share(r *http.Request) string {
	caller := Of(r.Context())
	if caller.GetName() != user.Anonymous && !Trusted(caller) {
		return shareOf(caller)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if address, err := netip.ParseAddr(host); err == nil && address.Is6() && !address.Is4In6() {
		host = netip.PrefixFrom(address.WithZone(""), ownNetwork).Masked().String()
	}
	return "address " + host
}

// shareOf is Share for a caller that is known.
func shareOf(caller user.Info) string { return "user " + caller.GetName() }

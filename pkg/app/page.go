package app

import (
	"fmt"
	"net"
	"net/http"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/ui"
)

// validatePage checks where the page is served. Clients show tokens to it: off loopback it has to speak TLS, unless
// AllowInsecureHTTP is set.
func (o *Options) validatePage() error {
	if err := validateAddress("--ui-address", o.UIAddress); err != nil {
		return err
	}
	if o.UIAddress != "" && !isLocal(o.UIAddress) && !o.Secure.enabled() && !o.AllowInsecureHTTP {
		return fmt.Errorf("--ui-address %s is not loopback and there is no --tls-cert-file: tokens would travel in the "+
			"clear; serve it on 127.0.0.1, give --tls-cert-file and --tls-private-key-file, or add --allow-insecure-http where "+
			"something in front of it speaks TLS", o.UIAddress)
	}
	return nil
}

// isLocal reports whether an address is of loopback.
func isLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && net.ParseIP(host).IsLoopback()
}

// buildPage sets up the listener of the page. Its clients may see what they may see elsewhere: where plain HTTP is
// served on loopback, everybody on this host may see everything, and so on the page's port, too, if that is on
// loopback. Everywhere else the page shows a token, or what is in front of it does.
func (a *App) buildPage(routes http.Handler) {
	if a.options.UIAddress == "" {
		return
	}
	known := a.intake.Limit(a.forwarded(decides, routes))
	if isLocal(a.options.UIAddress) && a.options.BindAddress != "" {
		known = auth.Insecure(known)
	} else {
		known = a.checks.Outside(&auth.Entry{Intake: a.intake}, known)
	}
	page := notForBrowsers(a.options.HostNames, ui.New(known))
	a.page = a.listenOn(port{"page", "uiAddress", a.options.UIAddress, "--ui-address"}, a.health.lettingGo(page),
		maxTLSConnections)
}

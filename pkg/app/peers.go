package app

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/election/forward"
)

// PeerOptions configures how other servers reach this one while it decides.
type PeerOptions struct {
	// Address to listen on for other servers. Port 0 chooses a free one. Empty: they cannot reach this one.
	Address string
	// URL is where they reach this one. Empty: the server finds it out.
	URL string
}

func (o *PeerOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "peer-address", o.Address,
		"address to listen on, over TLS, for the other servers, which pass requests on to the one that decides; port 0 "+
			"chooses a free one, which they learn: name one where a firewall or a NetworkPolicy stands between; empty for none")
	fs.StringVar(&o.URL, "peer-advertise-url", o.URL,
		"where the other servers reach --peer-address, such as https://10.0.0.7:23458; without it by the address listened "+
			"on, by $POD_IP or by the name of this host")
}

func (o *PeerOptions) validate() error {
	errs := []error{validateAddress("--peer-address", o.Address)}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			errs = append(errs, fmt.Errorf("--peer-advertise-url %q is not of the form https://host:port", o.URL))
		}
		if o.Address == "" {
			errs = append(errs, errors.New("--peer-advertise-url needs a --peer-address"))
		}
	}
	return errors.Join(errs...)
}

// validateAddress checks an address and port to listen on, which may be left out.
func validateAddress(flag, address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || (host != "" && net.ParseIP(host) == nil) {
		return fmt.Errorf("%s %q is not an IP address and a port; give one, such as 0.0.0.0:23458, or :0 for any free port",
			flag, address)
	}
	return nil
}

// advertised is where others reach a listener.
func (o *PeerOptions) advertised(listening net.Addr) (string, error) {
	if o.URL != "" {
		return strings.TrimSuffix(o.URL, "/"), nil
	}
	address, ok := listening.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("listening on %s, which is no TCP", listening)
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		if host = os.Getenv("POD_IP"); host == "" {
			var err error
			if host, err = os.Hostname(); err != nil {
				return "", fmt.Errorf("finding the name of this host, give --peer-advertise-url: %w", err)
			}
		}
	}
	return "https://" + hostPort(host, address.Port), nil
}

// buildPeers sets up what passes requests on to the server that decides, or takes them from others.
func (a *App) buildPeers(clients Clients) (err error) {
	a.forwarder, err = forward.New(forward.Options{
		Name: a.elector.Identity(), Leads: a.elector.Leads, Moved: a.elector.Moved, Undecided: a.health.undecided,
		Network: a.options.Network, Kind: a.definitions.Kind("ledgerterms"), Client: clients.Reservations,
		Metrics: a.metrics, Refuse: a.health.unknown, Intake: a.intake, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.metrics.RegisterForwarding(a.forwarder.Held, a.forwarder.Unknown)
	return nil
}

// serve sets up the listeners: the plain one and that of TLS, whose requests are passed on where this server does
// not decide, and the one that takes what others passed on. A caller's rate is bounded where its requests come in, and
// not again where they are passed on. On a port of loopback all callers look the same, and may do everything anyhow:
// with a bound, one that runs wild would keep out the scheduler, which without it gets at least its turns.
func (a *App) serve(routes http.Handler) {
	routes = a.health.untilComplete(routes)
	a.inside = httpjson.Own(auth.Insecure(a.forwarder.Decided(routes)))
	if a.options.HealthAddress != "" {
		a.listenOn(port{"HTTP of probes and metrics", "healthAddress", a.options.HealthAddress, "--health-address"},
			notForBrowsers(a.options.HostNames, a.health.handler()), maxTLSConnections)
	}
	if a.options.BindAddress != "" {
		plain := a.options.Tracer.Handler(a.intake.Limit(a.forwarded(decides, routes)))
		if !net.ParseIP(a.options.BindAddress).IsLoopback() {
			plain = a.intake.Paced(plain)
		}
		a.listenOn(port{"HTTP", "address", hostPort(a.options.BindAddress, a.options.Port), "--port"},
			a.health.lettingGo(notForBrowsers(a.options.HostNames, auth.Insecure(plain))), maxConnections)
	}
	hooks := httpjson.NewRouter()
	admission.New(admission.Options{
		Arbiter: a.arbiter, Intake: a.intake, Metrics: a.metrics, Log: a.log, Observer: a.observer,
	}).Register(hooks)
	hooks.NotFound = routes
	if a.options.Peers.Address != "" {
		passedOn := a.health.lettingGo(a.options.Tracer.Handler(a.forwarder.Accept(a.intake.Limit(hooks))))
		a.peers = a.listenOn(port{"HTTPS for other servers", "peerAddress", a.options.Peers.Address, "--peer-address"},
			passedOn, maxTLSConnections)
		a.peers.server.TLSConfig = a.forwarder.Key().ServerTLS()
		a.peers.server.WriteTimeout = writeTimeout + time.Second // the server that passed the request on gives up first
	}
	a.buildPage(routes)
	a.buildProfile()
	all := func(path string) bool { return admission.Serves(path) || decides(path) }
	a.known = a.health.lettingGo(a.options.Tracer.Handler(a.intake.Limit(a.forwarded(all, a.health.untilComplete(hooks)))))
	if secure := a.options.Secure; secure.enabled() {
		at := port{"HTTPS", "secureAddress", hostPort(secure.BindAddress, secure.Port), "--secure-port"}
		a.secure = &secureServer{
			options: secure, checks: a.checks, intake: a.intake, httpServer: a.listenOn(at, a.known, maxTLSConnections),
		}
	}
}

// listenOn adds a listener. What is added last stops first.
func (a *App) listenOn(at port, handler http.Handler, connections int) *httpServer {
	s := newHTTPServer(a.options.Network, at, handler, connections, a.log)
	a.listeners = append(a.listeners, s)
	return s
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// decides reports whether a path is for the server that decides. What a client over plain HTTP may not ask here,
// such as the webhook, it may not ask there.
func decides(path string) bool {
	switch path {
	case "/filter", "/prioritize", "/preempt", "/bind", "/reserve", "/unreserve":
		return true
	default:
		return strings.HasPrefix(path, "/v1/")
	}
}

// advertise publishes where the port for the other servers is.
func (a *App) advertise() error {
	if a.peers == nil {
		return nil
	}
	url, err := a.options.Peers.advertised(a.peers.listener.Addr())
	if err != nil {
		return err
	}
	a.elector.Advertise(url, a.forwarder.Key().Public)
	return nil
}

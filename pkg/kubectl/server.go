package kubectl

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes.
	maxAnswer = 256 << 20

	// pageSize is how many nodes or allocations are asked for at once.
	pageSize = "1000"
)

// connectServer reaches the server, once, at --ledger-url or through a tunnel to its Service.
func (e *environment) connectServer(ctx context.Context) error {
	if e.server != nil {
		return nil
	}
	timeout, err := e.timeout()
	if err != nil {
		return err
	}
	options := e.credentials
	address := e.serverURL
	if address == "" {
		var name string
		if address, name, err = e.openTunnel(ctx); err != nil {
			return err
		}
		if strings.HasPrefix(address, "https") {
			options.ServerName = cmp.Or(options.ServerName, name) // of the Service, not of this end of the tunnel
		}
	}
	options.URL, options.Timeout, options.RetryFor, options.MaxAnswer = address, timeout, e.retryFor, maxAnswer
	e.server, err = client.New(options)
	if err != nil {
		return usageErrorf("--ledger-url: %w", err)
	}
	return nil
}

// openTunnel opens a tunnel to a pod of --service, whose certificate has the name of that.
func (e *environment) openTunnel(ctx context.Context) (address, name string, err error) {
	ref, err := parseService(e.service)
	if err != nil {
		return "", "", err
	}
	cluster, err := e.cluster()
	if err != nil {
		return "", "", err
	}
	target, err := choosePod(ctx, cluster.kube, ref)
	if err != nil {
		return "", "", err
	}
	address, e.closeTunnel, err = e.forward(ctx, target)
	return address, ref.Name + "." + ref.Namespace + ".svc", err
}

// close ends the connection to the server, if there is one.
func (e *environment) close() {
	if e.server != nil {
		e.server.Close()
	}
	if e.closeTunnel != nil {
		e.closeTunnel()
	}
}

// get reads one JSON answer of the server.
func get[A any](ctx context.Context, e *environment, path string, query url.Values) (*A, error) {
	if err := e.connectServer(ctx); err != nil {
		return nil, err
	}
	answer, err := client.Get[A](ctx, e.server, path, query)
	return answer, e.explainServerError(err)
}

// explainServerError says by which flags an error of the server goes away, where that is known.
func (e *environment) explainServerError(err error) error {
	var away *reserver.UnavailableError
	var refused *reserver.UnauthorizedError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("the GlobalReserve server does not know who you are: %w: give --ledger-token, "+
			"or --ledger-client-certificate and --ledger-client-key", err)
	case errors.As(err, &authority):
		return unreachablef("the certificate of the GlobalReserve server is not trusted: %w: give "+
			"--ledger-certificate-authority FILE "+
			"with ca.crt of its Secret: kubectl -n globalreserve-system get secret globalreserve-tls -o "+
			"jsonpath='{.data.ca\\.crt}' | base64 -d", authority)
	case errors.As(err, &name):
		return unreachablef("the certificate of the GlobalReserve server has another name: %w: give "+
			"--ledger-tls-server-name, such as globalreserve.globalreserve-system.svc", name)
	case errors.As(err, &away) && e.serverURL == "":
		return unreachablef("the GlobalReserve server does not answer through the forwarded port: %w: "+
			"see the log of its pod, or give its address with --ledger-url URL; over TLS it takes "+
			"--ledger-certificate-authority, and --ledger-token or --ledger-client-certificate", away.Err)
	case errors.As(err, &away):
		return unreachablef("the GlobalReserve server does not answer at %s: %w: check --ledger-url and --request-timeout; "+
			"without --ledger-url, a port is forwarded to the Service %s", e.serverURL, away.Err, defaultService)
	}
	return err
}

// queryOf are the parameters of a request, without those that are empty.
func queryOf(values map[string]string) url.Values {
	query := url.Values{}
	for name, value := range values {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// getAll reads all pages of a list. of is that of client.List.
func getAll[A, T any](ctx context.Context, e *environment, path string, query url.Values,
	of func(*A) (*[]T, *string),
) (*A, error) {
	if err := e.connectServer(ctx); err != nil {
		return nil, err
	}
	query.Set("limit", pageSize)
	answer, err := client.List(ctx, e.server, path, query, of)
	return answer, e.explainServerError(err)
}

package kubectl

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
	if _, err := e.timeout(); err != nil {
		return err
	}
	if e.serverURL != "" {
		var err error
		e.server, err = e.newClient(e.serverURL, "")
		return err
	}
	ref, err := parseService(e.service)
	if err != nil {
		return err
	}
	cluster, err := e.cluster()
	if err != nil {
		return err
	}
	pods, err := readyPorts(ctx, cluster.kube, ref, false)
	if err != nil {
		return err
	}
	e.server, err = e.connectPod(ctx, ref, pods[0])
	return err
}

// connectPod opens a tunnel to a pod of a Service, whose certificate has the name of that.
func (e *environment) connectPod(ctx context.Context, ref serviceRef, pod podPort) (*client.Client, error) {
	address, stop, err := e.forward(ctx, pod)
	if err != nil {
		return nil, err
	}
	e.atClose(stop)
	return e.newClient(address, ref.Name+"."+ref.Namespace+".svc")
}

// newClient makes a client for a server at an address; over TLS it is to have the name, or that of the flags.
func (e *environment) newClient(address, name string) (*client.Client, error) {
	timeout, err := e.timeout()
	if err != nil {
		return nil, err
	}
	options := e.credentials
	if strings.HasPrefix(address, "https") {
		options.ServerName = cmp.Or(options.ServerName, name)
	}
	options.URL, options.Timeout, options.RetryFor, options.MaxAnswer = address, timeout, e.retryFor, maxAnswer
	made, err := client.New(options)
	if err != nil {
		return nil, usageErrorf("--ledger-url: %w", err)
	}
	e.atClose(made.Close)
	return made, nil
}

func (e *environment) atClose(end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closers = append(e.closers, end)
}

// close ends all connections to servers, and the tunnels to them.
func (e *environment) close() {
	for _, end := range slices.Backward(e.closers) {
		end()
	}
	e.closers, e.server = nil, nil
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

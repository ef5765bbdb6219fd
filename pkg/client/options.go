package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Options say where the server is and how to talk to it.
type Options struct {
	// URL is the server's, such as http://127.0.0.1:23456.
	URL string
	// Handler, if given, is a server in this process, which is asked without the network: URL only names it.
	Handler http.Handler
	// CAFile has the authorities the server's certificate must come from, in PEM; empty: those of the system.
	CAFile string
	// CertFile and KeyFile are the client's own certificate, in PEM. Files that are
	// renewed are read again within some minutes.
	CertFile, KeyFile string
	// Token is a token of the cluster that says who the client is, and TokenFile a file with one, which is read again
	// when it is renewed; the file goes first.
	Token, TokenFile string
	// ServerName is what the server's certificate must name; empty: the host of the URL.
	ServerName string
	// Timeout bounds one try of a request; default 15 s. A durable Reserve may take
	// the server 8 s, and one with a MinRevision 5 s more.
	Timeout time.Duration
	// RetryFor bounds all tries of a request together, besides its context; default
	// 30 s. The first try is made in any case.
	RetryFor time.Duration
	// MaxAnswer is the longest answer, in bytes; default 64 MiB.
	MaxAnswer int64
	// OnRetry, if given, is called with the reason why a request is sent again, and the pause before that, while a call
	// that takes long has not returned. It must not block, and runs in the goroutine that calls the client.
	OnRetry func(path string, why error, pause time.Duration)
	// Clock is for tests; default is the system's.
	Clock clock.WithDelayedExecution
}

func (o *Options) setDefaults() {
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.RetryFor = cmp.Or(o.RetryFor, 30*time.Second)
	o.MaxAnswer = cmp.Or(o.MaxAnswer, 64<<20)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// validate returns the parsed URL, or what is wrong with the options and what to give instead.
func (o *Options) validate() (*url.URL, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("%q is not the URL of a server: give one such as http://127.0.0.1:23456", o.URL)
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("the URL of the server, %s, has more than scheme, host, port and path: leave the rest out",
			base.Redacted())
	}
	secure := base.Scheme == "https"
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("CertFile and KeyFile belong together: give both or none")
	case !secure && o.CAFile+o.CertFile+o.Token+o.TokenFile+o.ServerName != "":
		return nil,
			fmt.Errorf("CAFile, CertFile, Token, TokenFile and ServerName are for https, and the URL is %s: change one of them",
				o.URL)
	case o.Timeout < 0 || o.RetryFor < 0 || o.MaxAnswer < 0:
		return nil, errors.New("a time or a limit is negative: give 0 for the default of Timeout, RetryFor and MaxAnswer")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return base, nil
}

// userAgent names the client, with its version where the program was built with one.
func userAgent() string {
	const product, module = "globalreserve-client", "github.com/globalreserve/globalreserve/pkg/client"
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == module {
				return product + "/" + m.Version
			}
		}
	}
	return product
}

// httpClient keeps connections open for the next request. It speaks HTTP/1.1, where a request that
// times out ends its connection: over HTTP/2 all would go on sharing one that has gone dead.
func (o *Options) httpClient() (*http.Client, error) {
	transport, err := o.transport()
	if err != nil {
		return nil, fmt.Errorf("setting up connections to the server: %w", err)
	}
	return &http.Client{
		Transport: transport,
		// A server that sends requests elsewhere is none of ours.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (o *Options) transport() (http.RoundTripper, error) {
	if o.Handler != nil {
		return inside{o.Handler}, nil
	}
	return rest.TransportFor(&rest.Config{
		BearerToken: o.Token, BearerTokenFile: o.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName,
			NextProtos: []string{"http/1.1"},
		},
		UserAgent: userAgent(),
		Dial:      (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	})
}

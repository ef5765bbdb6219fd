package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/server/admission"
)

// DefaultSecurePort is the port GlobalReserve serves TLS on.
const DefaultSecurePort = 23457

// SecureOptions configures serving over TLS, on a port of its own: schedulers on
// the server's host go on using plain HTTP on loopback, while the API server, for
// which a webhook must be HTTPS, comes from elsewhere.
type SecureOptions struct {
	// CertFile and KeyFile are the paths of the certificate and its key in PEM.
	// They are read again when they change. Both empty: TLS is not served.
	CertFile, KeyFile string
	// BindAddress is the IP address to serve on.
	BindAddress string
	// Port to serve on; 0 chooses a free one (see App.SecureAddr).
	Port int
	// ClientCAFile is the path of the authorities whose client certificates open
	// more than the webhook and the probes. It is read again when it changes.
	ClientCAFile string
	// AdmissionClients are the common names of the client certificates that may
	// call the webhook. Empty: whoever reaches the port may.
	AdmissionClients []string
}

// Enabled reports whether TLS is served.
func (o *SecureOptions) Enabled() bool { return o.CertFile != "" }

func (o *SecureOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "path of the certificate, in PEM, to serve the admission webhook with; it is read again when it changes")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "path of the key of --tls-cert-file")
	fs.StringVar(&o.BindAddress, "secure-bind-address", o.BindAddress, "IP address to serve TLS on")
	fs.IntVar(&o.Port, "secure-port", o.Port, "port to serve TLS on, where there is a --tls-cert-file; 0 chooses a free one")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "path of the authorities, in PEM, whose client certificates give access to everything over TLS; without it only the webhook and the probes are served there")
	fs.StringSliceVar(&o.AdmissionClients, "admission-client-names", o.AdmissionClients, "common names of the client certificates that may call the admission webhook; without it whoever reaches the port may")
}

func (o *SecureOptions) validate() []error {
	var errs []error
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file belong together; give both or none"))
	}
	if net.ParseIP(o.BindAddress) == nil {
		errs = append(errs, fmt.Errorf("--secure-bind-address %q is not an IP address; give one, such as 0.0.0.0", o.BindAddress))
	}
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d is out of range; give 1 to 65535, or 0 for any free port", o.Port))
	}
	if o.ClientCAFile != "" && !o.Enabled() {
		errs = append(errs, errors.New("--client-ca-file needs TLS; give --tls-cert-file and --tls-private-key-file too"))
	}
	if len(o.AdmissionClients) > 0 && o.ClientCAFile == "" {
		errs = append(errs, errors.New("--admission-client-names needs --client-ca-file, which tells true certificates from others"))
	}
	return errs
}

// secureServer serves the webhook, and to those with a client certificate
// everything else, over TLS.
type secureServer struct {
	*httpServer
	options SecureOptions
	// files follow what was read of the files; none before open.
	files []func(ctx context.Context)
}

// newSecureServer makes a server of what is for those who may ask. It starts nothing.
func newSecureServer(o SecureOptions, next http.Handler, log logrus.FieldLogger) *secureServer {
	return &secureServer{options: o, httpServer: newHTTPServer(o.authenticate(next), log)}
}

// authenticate lets requests through that have the client certificate they need.
func (o *SecureOptions) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, known := clientName(r)
		switch {
		case probe(r.URL.Path):
		case r.URL.Path == admission.Path:
			if len(o.AdmissionClients) > 0 && (!known || !slices.Contains(o.AdmissionClients, client)) {
				httpjson.WriteError(w, httpjson.Errorf(http.StatusUnauthorized,
					"the admission webhook is for the API server only: show a client certificate with a name of --admission-client-names"))
				return
			}
		case o.ClientCAFile == "":
			httpjson.WriteError(w, httpjson.Errorf(http.StatusForbidden,
				"only the admission webhook is served here: use the server's other port, or start it with --client-ca-file"))
			return
		case !known:
			httpjson.WriteError(w, httpjson.Errorf(http.StatusUnauthorized,
				"who are you? Show a client certificate of an authority in --client-ca-file"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// clientName returns the common name of the client certificate of a request,
// which the TLS handshake has verified, and false where it came without one.
func clientName(r *http.Request) (string, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	return r.TLS.VerifiedChains[0][0].Subject.CommonName, true
}

func probe(path string) bool {
	switch path {
	case "/livez", "/readyz", "/healthz", "/version":
		return true
	default:
		return false
	}
}

// open reads the files and opens the port.
func (s *secureServer) open() error {
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.options.CertFile, s.options.KeyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert-file and --tls-private-key-file cannot be used: %w", err)
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	followers := []dynamiccertificates.ControllerRunner{serving}
	notifiers := []dynamiccertificates.Notifier{serving}
	var authorities dynamiccertificates.CAContentProvider
	if s.options.ClientCAFile != "" {
		file, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", s.options.ClientCAFile)
		if err != nil {
			return fmt.Errorf("--client-ca-file cannot be used: %w", err)
		}
		base.ClientAuth, authorities = tls.VerifyClientCertIfGiven, file
		followers, notifiers = append(followers, file), append(notifiers, file)
	}
	current := dynamiccertificates.NewDynamicServingCertificateController(base, authorities, serving, nil, nil)
	for _, n := range notifiers {
		n.AddListener(current)
	}
	if err := current.RunOnce(); err != nil {
		return fmt.Errorf("TLS cannot be served with these files: %w", err)
	}
	s.server.TLSConfig = base.Clone()
	s.server.TLSConfig.GetConfigForClient = current.GetConfigForClient
	if err := s.listen(s.options.BindAddress, s.options.Port, "--secure-port"); err != nil {
		return err
	}
	for _, f := range followers {
		s.files = append(s.files, func(ctx context.Context) { f.Run(ctx, 1) })
	}
	s.files = append(s.files, func(ctx context.Context) { current.Run(1, ctx.Done()) })
	return nil
}

// followFiles takes in what changes in the files until ctx ends.
func (s *secureServer) followFiles(ctx context.Context) error {
	var done sync.WaitGroup
	for _, f := range s.files {
		done.Go(func() { f(ctx) })
	}
	done.Wait()
	return nil
}

// SecureAddr returns the address TLS is served on, "" where it is not.
func (a *App) SecureAddr() string {
	if a.secure == nil {
		return ""
	}
	return a.secure.listener.Addr().String()
}

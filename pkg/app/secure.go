package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// defaultSecurePort is the port GlobalReserve serves TLS on.
const defaultSecurePort = 23457

// SecureOptions configures serving over TLS, on a port of its own: schedulers on the server's host may go on using
// plain HTTP on loopback, while those who come from elsewhere are asked who they are.
type SecureOptions struct {
	// CertFile and KeyFile are the paths of the certificate and its key in PEM.
	// They are read again when they change. Both empty: TLS is not served.
	CertFile, KeyFile string
	// BindAddress is the IP address to serve on.
	BindAddress string
	// Port to serve on; 0 chooses a free one, which is logged.
	Port int
	// ClientCAFile is the path of the authorities whose client certificates identify
	// a caller. It is read again when it changes. Empty: only tokens do.
	ClientCAFile string
	// AdmissionClients are the names of the callers that may call the webhook.
	// Empty: nobody may. user.Anonymous stands for everybody who reaches the port.
	AdmissionClients []string
	// AdmissionWarn makes the webhook warn where it would refuse.
	AdmissionWarn bool
}

// enabled reports whether TLS is served.
func (o *SecureOptions) enabled() bool { return o.CertFile != "" }

func (o *SecureOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile,
		"path of the certificate, in PEM, to serve TLS with; it is read again when it changes")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "path of the key of --tls-cert-file")
	fs.StringVar(&o.BindAddress, "secure-bind-address", o.BindAddress, "IP address to serve TLS on")
	fs.IntVar(&o.Port, "secure-port", o.Port,
		"port to serve TLS on, where there is a --tls-cert-file; 0 chooses a free one")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"path of the authorities, in PEM, whose client certificates name callers over TLS, as tokens of the "+
			"cluster do; what callers may do is asked of the API server; the file is read again when it changes")
	fs.StringSliceVar(&o.AdmissionClients, "admission-client-names", o.AdmissionClients,
		"names of the callers that may call the admission webhook, which are the API server's; without it nobody may; "+
			user.Anonymous+" stands for whoever reaches the port")
	fs.BoolVar(&o.AdmissionWarn, "admission-warn", o.AdmissionWarn,
		"have the admission webhook allow what it would refuse, with a warning to who asked, and count it; for other "+
			"requests nothing changes")
}

func (o *SecureOptions) validate() error {
	errs := []error{validatePort("--secure-port", o.Port)}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file belong together; give both or none"))
	}
	if net.ParseIP(o.BindAddress) == nil {
		errs = append(errs, fmt.Errorf("--secure-bind-address %q is not an IP address; give one, such as 0.0.0.0",
			o.BindAddress))
	}
	if o.ClientCAFile != "" && !o.enabled() {
		errs = append(errs, errors.New("--client-ca-file needs TLS; give --tls-cert-file and --tls-private-key-file too"))
	}
	return errors.Join(errs...)
}

// secureServer serves everything over TLS, to callers with the right to it.
type secureServer struct {
	*httpServer
	options SecureOptions
	checks  *auth.Checks
	intake  *httpjson.Intake
	// files follow what was read of the files; none before readFiles.
	files []func(ctx context.Context)
}

// readFiles sets up the server's certificate, and which callers it serves.
func (s *secureServer) readFiles() error {
	serving, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.options.CertFile, s.options.KeyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert-file and --tls-private-key-file cannot be used: %w", err)
	}
	// A certificate that does not count does not end the handshake: the answer reports it.
	base := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequestClientCert,
	}
	entry := &auth.Entry{
		Open:      []string{"/livez", "/readyz", "/healthz", "/version"},
		Admission: admission.Paths, AdmissionCallers: s.options.AdmissionClients,
		Intake: s.intake,
	}
	followers := []dynamiccertificates.ControllerRunner{serving}
	notifiers := []dynamiccertificates.Notifier{serving}
	var authorities dynamiccertificates.CAContentProvider
	if s.options.ClientCAFile != "" {
		file, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", s.options.ClientCAFile)
		if err != nil {
			return fmt.Errorf("--client-ca-file cannot be used: %w", err)
		}
		authorities, entry.ClientCA = file, file
		followers, notifiers = append(followers, file), append(notifiers, file)
	}
	current := dynamiccertificates.NewDynamicServingCertificateController(base, authorities, serving, nil, nil)
	for _, n := range notifiers {
		n.AddListener(current)
	}
	if err := current.RunOnce(); err != nil {
		return fmt.Errorf("TLS cannot be served with these files: %w", err)
	}
	s.server.Handler = s.checks.Outside(entry, s.server.Handler)
	s.server.TLSConfig = base.Clone()
	s.server.TLSConfig.GetConfigForClient = current.GetConfigForClient
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

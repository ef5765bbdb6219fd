package local

import (
	"cmp"
	"time"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// serverOptions returns the options of the server; what the args leave out is as for
// the globalreserve binary.
func serverOptions(args *schedulerplugin.Args) app.Options {
	s := &args.Server
	o := app.DefaultOptions()
	o.BindAddress = cmp.Or(s.BindAddress, o.BindAddress)
	o.AllowInsecureHTTP = s.AllowInsecureHTTP
	o.ReservationTTL = orDefault(s.ReservationTTL.Duration, o.ReservationTTL)
	o.BindTimeout = orDefault(s.BindTimeout.Duration, o.BindTimeout)
	o.PolicyFile = s.PolicyFile
	for _, name := range args.IgnoredResources {
		o.IgnoredResources = append(o.IgnoredResources, string(name))
	}
	o.LogLevel = cmp.Or(s.LogLevel, o.LogLevel)
	o.LogFormat = cmp.Or(s.LogFormat, o.LogFormat)
	if s.Port != nil {
		o.Port = *s.Port
	}
	o.Secure.CertFile, o.Secure.KeyFile = s.TLSCertFile, s.TLSPrivateKeyFile
	o.Secure.BindAddress = cmp.Or(s.SecureBindAddress, o.Secure.BindAddress)
	o.Secure.ClientCAFile, o.Secure.AdmissionClients = s.ClientCAFile, s.AdmissionClientNames
	if s.SecurePort != nil {
		o.Secure.Port = *s.SecurePort
	}
	return o
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

package local

import (
	"cmp"

	"k8s.io/utils/ptr"

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
	o.ReservationTTL = cmp.Or(s.ReservationTTL.Duration, o.ReservationTTL)
	o.BindTimeout = cmp.Or(s.BindTimeout.Duration, o.BindTimeout)
	o.PolicyFile = s.PolicyFile
	for _, name := range args.IgnoredResources {
		o.IgnoredResources = append(o.IgnoredResources, string(name))
	}
	o.LogLevel = cmp.Or(s.LogLevel, o.LogLevel)
	o.LogFormat = cmp.Or(s.LogFormat, o.LogFormat)
	o.Port = ptr.Deref(s.Port, o.Port)
	o.Secure.CertFile, o.Secure.KeyFile = s.TLSCertFile, s.TLSPrivateKeyFile
	o.Secure.BindAddress = cmp.Or(s.SecureBindAddress, o.Secure.BindAddress)
	o.Secure.ClientCAFile, o.Secure.AdmissionClients = s.ClientCAFile, s.AdmissionClientNames
	o.Secure.Port = ptr.Deref(s.SecurePort, o.Secure.Port)
	return o
}

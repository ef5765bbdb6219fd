package schedulerplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// Options configures the plugins of a scheduler.
type Options struct {
	// Log is the plugins'; Out is where the server's goes.
	Log logrus.FieldLogger
	Out io.Writer
	// Exit ends the process: the server cannot serve any more, or may no longer.
	Exit func(error)
}

// server is the server in the scheduler's process, with the ledger that the plugins of all profiles decide on. It is
// safe for concurrent use.
type server struct {
	ledger   ledger.Reader
	gates    *gates.Gates
	question *placement.Builder
	arbiter  *decide.Arbiter
	waiting  *requeue.Pods
	// deciding reports whether decisions can be made now.
	deciding func() bool
	// ttl is how long what Reserve takes is kept.
	ttl time.Duration

	stopped chan struct{} // closed when it has stopped
	err     error         // of stopping; to be read after stopped
}

// startServer starts a server. It serves until ctx ends.
func (o *Options) startServer(ctx context.Context, args *Args, handle fwk.Handle) (*server, error) {
	clients, err := app.NewClients(handle.KubeConfig())
	if err != nil {
		return nil, err
	}
	a, err := app.New(serverOptions(args), clients, o.Out)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &server{
		ledger: a.Ledger(), gates: a.Gates(), question: a.Question(), arbiter: a.Arbiter(), waiting: a.Waiting(),
		deciding: a.Deciding,
		ttl:      args.ReservationTTL.Duration, stopped: make(chan struct{}),
	}
	go func() {
		defer close(s.stopped)
		s.err = a.Serve(ctx)
		if ctx.Err() == nil {
			o.Exit(fmt.Errorf("the server in the scheduler cannot serve: %w", s.err))
		}
	}()
	return s, nil
}

// refusal reports whether an error of the arbiter says that there is no capacity for a pod on a node, and why: reason
// is Fits where a gate has refused, and not the ledger.
func refusal(err error) (reason ledger.Reason, refused bool) {
	var e *gates.Error
	if !errors.As(err, &e) || e.Outcome != gates.Refused {
		return ledger.Fits, false
	}
	if e.Rejection != nil {
		reason = e.Rejection.Reason
	}
	return reason, true
}

// serverOptions returns the options of the server; what the args leave out is as for the globalreserve binary.
func serverOptions(args *Args) app.Options {
	s := &args.Server
	o := app.DefaultOptions()
	o.BindAddress = ptr.Deref(s.BindAddress, o.BindAddress)
	o.AllowInsecureHTTP, o.HealthAddress = s.AllowInsecureHTTP, s.HealthAddress
	o.UIAddress, o.HostNames = s.UIAddress, s.HostNames
	o.ReservationTTL = cmp.Or(s.ReservationTTL.Duration, o.ReservationTTL)
	o.BindTimeout = cmp.Or(s.BindTimeout.Duration, o.BindTimeout)
	o.PolicyFile = s.PolicyFile
	lease := &o.Election
	lease.Namespace = cmp.Or(s.LeaseNamespace, lease.Namespace)
	lease.Times.Lease = cmp.Or(s.LeaseDuration.Duration, lease.Times.Lease)
	lease.Times.Renew = cmp.Or(s.LeaseRenewDeadline.Duration, lease.Times.Renew)
	lease.Times.Retry = cmp.Or(s.LeaseRetryPeriod.Duration, lease.Times.Retry)
	o.Peers.Address, o.Peers.URL = cmp.Or(s.PeerAddress, o.Peers.Address), s.PeerAdvertiseURL
	for _, name := range args.IgnoredResources {
		o.IgnoredResources = append(o.IgnoredResources, string(name))
	}
	o.LogLevel = cmp.Or(s.LogLevel, o.LogLevel)
	o.LogFormat = cmp.Or(s.LogFormat, o.LogFormat)
	o.Port = ptr.Deref(s.Port, o.Port)
	o.Secure.CertFile, o.Secure.KeyFile = s.TLSCertFile, s.TLSPrivateKeyFile
	o.Secure.BindAddress = cmp.Or(s.SecureBindAddress, o.Secure.BindAddress)
	o.Secure.ClientCAFile, o.Secure.AdmissionClients, o.Secure.AdmissionWarn = s.ClientCAFile, s.AdmissionClientNames,
		s.AdmissionWarn
	o.Secure.Port = ptr.Deref(s.SecurePort, o.Secure.Port)
	return o
}

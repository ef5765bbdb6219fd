package local

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
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

// Options configures the backend.
type Options struct {
	// Log is the plugin's; Out is where the server's goes.
	Log logrus.FieldLogger
	Out io.Writer
	// Exit ends the process: the server cannot serve any more, or may no longer.
	Exit func(error)
}

// Backend returns how the plugin makes its backend.
func (o Options) Backend() schedulerplugin.NewBackend {
	return func(ctx context.Context, args *schedulerplugin.Args, handle fwk.Handle) (schedulerplugin.Backend, error) {
		clients, err := app.NewClients(handle.KubeConfig())
		if err != nil {
			return nil, err
		}
		server, err := app.New(serverOptions(args), clients, o.Out)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		b := &backend{Options: o, app: server, ttl: args.ReservationTTL.Duration, stopped: make(chan struct{})}
		go b.run(ctx)
		return b, nil
	}
}

// backend implements schedulerplugin.Backend.
type backend struct {
	Options
	app     *app.App
	ttl     time.Duration
	stopped chan struct{}
	err     error // of stopping; to be read after stopped
}

// run serves until ctx ends.
func (b *backend) run(ctx context.Context) {
	defer close(b.stopped)
	b.err = b.app.Serve(ctx)
	if ctx.Err() == nil {
		b.Exit(fmt.Errorf("the server in the scheduler cannot serve: %w", b.err))
	}
}

// Wait implements schedulerplugin.Backend.
func (b *backend) Wait() error {
	<-b.stopped
	return b.err
}

// Ledger implements schedulerplugin.Backend.
func (b *backend) Ledger() ledger.Reader { return b.app.Ledger() }

// Question implements schedulerplugin.Backend.
func (b *backend) Question() *placement.Builder { return b.app.Question() }

// Ready implements schedulerplugin.Backend.
func (b *backend) Ready() bool { return b.app.Deciding() }

// Host implements schedulerplugin.Backend.
func (b *backend) Host(profile string, w *waiting.Pods) { b.app.Waiting().Host(profile, w) }

// Reserve implements schedulerplugin.Backend.
func (b *backend) Reserve(p *ledger.Placement) (made bool, err error) {
	if !b.Ready() {
		return false, schedulerplugin.ErrNotReady
	}
	made, revision, err := b.app.Arbiter().Keep(p, b.ttl)
	return made, explain(err, revision)
}

// ReserveAll implements schedulerplugin.Backend.
func (b *backend) ReserveAll(gang []ledger.Placement) (made []bool, err error) {
	if !b.Ready() {
		return nil, schedulerplugin.ErrNotReady
	}
	made, revision, err := b.app.Arbiter().KeepAll(gang, b.ttl)
	return made, explain(err, revision)
}

// Advise implements schedulerplugin.Backend.
func (b *backend) Advise(pod *cluster.Pod) ledger.Reason { return b.app.Arbiter().AdviseGang(pod) }

// Refused implements schedulerplugin.Backend.
func (b *backend) Refused(pod *cluster.Pod, nodes []string) {
	b.app.Arbiter().PluginRefused(pod, nodes)
}

// explain says in the plugin's own words what became of a reservation at a revision.
func explain(err error, revision uint64) error {
	var refused *gates.Error
	switch {
	case errors.As(err, &refused) && refused.Outcome == gates.Refused:
		failed := &schedulerplugin.RefusedError{Message: err.Error(), Revision: revision}
		if refused.Rejection != nil { // else it is a gate's
			failed.Reason = refused.Rejection.Reason
		}
		return failed
	case err != nil: // the lease was lost since it was asked
		return fmt.Errorf("%w: %w", schedulerplugin.ErrNotReady, err)
	default:
		return nil
	}
}

// Release implements schedulerplugin.Backend. A claim that is being bound by then
// stays: whoever binds it settles it.
func (b *backend) Release(p *ledger.Placement) { b.app.Arbiter().Release(p) }

// Bind implements schedulerplugin.Backend.
func (b *backend) Bind(ctx context.Context, pod *cluster.Pod, node string) error {
	err := b.app.Arbiter().BindKnown(ctx, pod, node)
	var refused *gates.Error
	if errors.As(err, &refused) && refused.Rejection != nil && refused.Rejection.Reason.OfGang() {
		return explain(err, b.app.Ledger().Revision())
	}
	return err
}

// serverOptions returns the options of the server; what the args leave out is as for
// the globalreserve binary.
func serverOptions(args *schedulerplugin.Args) app.Options {
	s := &args.Server
	o := app.DefaultOptions()
	o.BindAddress = ptr.Deref(s.BindAddress, o.BindAddress)
	o.AllowInsecureHTTP, o.HealthAddress = s.AllowInsecureHTTP, s.HealthAddress
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

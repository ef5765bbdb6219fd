package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
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
		options := serverOptions(args)
		server, err := app.New(options, clients, o.Out)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		b := &backend{
			Options: o, app: server, ttl: args.ReservationTTL.Duration, stopTimeout: options.ShutdownTimeout,
			stopped: make(chan struct{}), profiles: map[string]bool{},
		}
		server.LeaveAlone(b.isProfile)
		server.OnClaimChanged(b.tellClaim)
		lock, err := newLock(clients.Core, &args.Server, o.Log)
		if err != nil {
			return nil, err
		}
		server.DecideOnlyWhile(lock.held)
		go b.run(ctx, lock)
		return b, nil
	}
}

// backend implements schedulerplugin.Backend.
type backend struct {
	Options
	app         *app.App
	ttl         time.Duration
	stopTimeout time.Duration
	serving     atomic.Bool // Start has returned
	stopped     chan struct{}
	err         error // of stopping; to be read after stopped

	mu       sync.Mutex // guards what follows
	notify   []func()
	claims   []func(namespace, name string)
	profiles map[string]bool
}

// run serves while this process is the one to decide, until ctx ends.
func (b *backend) run(ctx context.Context, lock *lock) {
	defer close(b.stopped)
	lock.run(ctx, b.serve, func() {
		b.Exit(errors.New("the lease of the ledger is lost: another scheduler may be deciding now"))
	})
}

// serve starts the server and stops it when ctx ends.
func (b *backend) serve(ctx context.Context) {
	// What runs in the background must outlive ctx: a stop still needs it.
	if err := b.app.Start(context.WithoutCancel(ctx)); err != nil {
		b.Exit(fmt.Errorf("starting the server in the scheduler: %w", err))
		return
	}
	b.serving.Store(true)
	waiting, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		if b.app.WaitReady(waiting) == nil {
			whenever(waiting, func() bool { return b.Ready() == nil }, b.tellReady)
		}
	})
	if err := b.app.Wait(ctx); err != nil {
		b.Exit(fmt.Errorf("the server in the scheduler cannot serve any more: %w", err))
	}
	cancel()
	background.Wait()
	stopping, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), b.stopTimeout)
	defer cancelStop()
	b.err = b.app.Stop(stopping)
}

// lookEvery is how often it is looked whether the account can be decided on again, after the
// lease was in doubt.
const lookEvery = 200 * time.Millisecond

// whenever calls tell each time that ready comes to be true, until ctx ends.
func whenever(ctx context.Context, ready func() bool, tell func()) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for was := false; ; {
		is := ready()
		if is && !was {
			tell()
		}
		was = is
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Wait returns when the server has stopped, after the backend's context has ended.
func (b *backend) Wait() error {
	<-b.stopped
	return b.err
}

// AddProfile is told of every profile of the scheduler while that is made. Its pods
// are woken by the plugin.
func (b *backend) AddProfile(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.profiles[name] = true
}

func (b *backend) isProfile(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.profiles[name]
}

// Ledger implements schedulerplugin.Backend.
func (b *backend) Ledger() ledger.Reader { return b.app.Ledger().Reader }

// Question implements schedulerplugin.Backend.
func (b *backend) Question() *question.Maker { return b.app.Question() }

// NotifyClaims implements schedulerplugin.Backend.
func (b *backend) NotifyClaims(f func(namespace, name string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = append(b.claims, f)
}

func (b *backend) tellClaim(namespace, name string) {
	b.mu.Lock()
	claims := slices.Clone(b.claims)
	b.mu.Unlock()
	for _, f := range claims {
		f(namespace, name)
	}
}

// Ready implements schedulerplugin.Backend.
func (b *backend) Ready() error {
	if b.serving.Load() && b.app.Deciding() {
		return nil
	}
	return &schedulerplugin.UnavailableError{Kind: schedulerplugin.Starting}
}

// NotifyReady implements schedulerplugin.Backend.
func (b *backend) NotifyReady(f func()) {
	b.mu.Lock()
	b.notify = append(b.notify, f)
	b.mu.Unlock()
	if b.Ready() == nil {
		f()
	}
}

// NotifyMatched has f called when it becomes known, after the room was reserved, that pods of
// a namespace may use it.
func (b *backend) NotifyMatched(f func(namespace string)) { b.app.NotifyMatched(f) }

func (b *backend) tellReady() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.notify {
		f()
	}
}

// Reserve implements schedulerplugin.Backend.
func (b *backend) Reserve(_ context.Context, _ *v1.Pod, p *ledger.Placement) (made bool, err error) {
	if err := b.Ready(); err != nil {
		return false, err
	}
	made, revision, err := b.app.Arbiter().Keep(p, b.ttl)
	var refused *arbiter.Error
	switch {
	case errors.As(err, &refused) && refused.Rejection != nil:
		return false, &schedulerplugin.RefusedError{Reason: refused.Rejection.Reason, Message: err.Error(), Revision: revision}
	case err != nil: // the lease was lost since it was asked
		return false, &schedulerplugin.UnavailableError{Kind: schedulerplugin.Starting, Cause: err}
	default:
		return made, nil
	}
}

// Unreserve implements schedulerplugin.Backend. A claim that is being bound by then
// stays: whoever binds it settles it.
func (b *backend) Unreserve(_ context.Context, p *ledger.Placement) { b.app.Arbiter().GiveBack(p) }

// Bind implements schedulerplugin.Backend.
func (b *backend) Bind(ctx context.Context, pod *cluster.Pod, node string) error {
	return b.app.Arbiter().BindKnown(ctx, pod, node)
}

// Caught implements schedulerplugin.Backend: Filter sees what Reserve sees.
func (b *backend) Caught(context.Context, uint64) {}

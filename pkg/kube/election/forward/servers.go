package forward

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	typed "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

const (
	// renewEvery is how often a server renews its entry, and forgetAfter how long the leader waits for that.
	renewEvery  = 5 * time.Minute
	forgetAfter = 3 * renewEvery
	// askAfter is how often at most the API server is asked who leads, where the known leader does not.
	askAfter = 100 * time.Millisecond
)

// servers follows the LedgerTerm: who leads, and which servers there are.
type servers struct {
	o      *Options
	key    *Key
	terms  typed.LedgerTermInterface
	watch  *informer.Watch
	doubts chan struct{}
	news   chan struct{} // that the own entry is missing
	// dialFor and leaveAfter are dialTimeout and leaveTimeout, but for tests.
	dialFor, leaveAfter time.Duration
	// renewed is what each server's entry last said, and since when by this server's clock. Only keepEntry uses it.
	renewed map[string]renewal

	mu      sync.Mutex // guards what follows
	leader  *leader    // nil while none is known
	keys    map[v1alpha1.PublicKey]string
	changed chan struct{} // closed when leader changes
	// alive is what the entries of other servers said when they were last seen.
	alive map[string]renewal
}

// renewal is what an entry says, and since when by this server's clock; zero where it did so from the start.
type renewal struct {
	said  metav1.MicroTime
	since time.Time
}

func newServers(o *Options, key *Key) *servers {
	s := &servers{
		o: o, key: key, terms: o.Client.GlobalreserveV1alpha1().LedgerTerms(),
		doubts: make(chan struct{}, 1), news: make(chan struct{}, 1), changed: make(chan struct{}),
		renewed: map[string]renewal{},
		dialFor: dialTimeout, leaveAfter: leaveTimeout,
	}
	s.watch = informer.NewWatch(o.Kind, o.Log, informer.NewSource(o.Client, "ledgerterms", s.terms, &v1alpha1.LedgerTerm{},
		func(term *v1alpha1.LedgerTerm, _ bool) { s.observe(term) }, s.gone))
	return s
}

// run follows the object until ctx ends, and keeps this server's entry in it.
func (s *servers) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.askWhereInDoubt(ctx) })
	running.Go(func() { s.keepEntry(ctx) })
	err := s.watch.Run(ctx, nil, func(context.Context) {
		s.o.Log.Warn("servers find each other by the LedgerTerm: while this one does not decide, it is not ready and " +
			"passes nothing on")
	})
	s.forget()
	return err
}

// known returns who leads, nil where that is not known, and a channel that is closed when that changes.
func (s *servers) known() (*leader, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.changed
}

// nameOf returns the server that has a key, and whether there is one.
func (s *servers) nameOf(key v1alpha1.PublicKey) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.keys[key]
	return name, ok
}

// others reports whether there may be another server.
func (s *servers) others() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.keys {
		if key != s.key.Public {
			return true
		}
	}
	return false
}

// observe records a state of the object that the watch reports.
func (s *servers) observe(term *v1alpha1.LedgerTerm) {
	if term.Name != v1alpha1.LedgerTermName {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = make(map[v1alpha1.PublicKey]string, len(term.Status.Servers))
	for _, one := range term.Status.Servers {
		s.keys[one.PublicKey] = one.Name
	}
	if s.keys[s.key.Public] != s.o.Name {
		informer.Poke(s.news)
	}
	s.noteAlive(term.Status.Servers)
	s.follow(&term.Spec)
}

// noteAlive is called under the lock. An entry that was there before this server looked is no sign of life: it may be
// of a server that is gone.
func (s *servers) noteAlive(list []v1alpha1.LedgerServer) {
	alive, looked := make(map[string]renewal, len(list)), s.alive != nil
	for _, one := range list {
		last, known := s.alive[one.Name]
		switch {
		case one.Name == s.o.Name:
			continue
		case known && last.said.Equal(&one.Renewed):
		case known || looked:
			last = renewal{one.Renewed, time.Now()}
		default:
			last = renewal{said: one.Renewed}
		}
		alive[one.Name] = last
	}
	s.alive = alive
}

// standBy reports whether another server has renewed its entry lately.
func (s *servers) standBy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.alive {
		if !one.since.IsZero() && time.Since(one.since) < forgetAfter {
			return true
		}
	}
	return false
}

// follow is called under the lock. The watch may be behind what was read, which then has a later term. The leader's
// address may come later than its term, if the definition did not know of the address.
func (s *servers) follow(spec *v1alpha1.LedgerTermSpec) {
	if s.leader != nil && spec.Term == s.leader.term {
		if s.leader.url == nil && spec.URL != "" {
			s.replace(newLeader(s.o.Network, s.key, spec, s.dialFor))
		}
		return
	}
	if s.leader == nil || spec.Term > s.leader.term {
		s.replace(newLeader(s.o.Network, s.key, spec, s.dialFor))
	}
	s.o.Moved()
}

func (s *servers) gone(term *v1alpha1.LedgerTerm) {
	if term.Name == v1alpha1.LedgerTermName {
		s.forget()
		s.o.Moved()
	}
}

func (s *servers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.alive = nil, nil
	s.replace(nil)
}

// replace is called under the lock. Requests under way to the previous leader end soon: that server may be paused.
func (s *servers) replace(next *leader) {
	if s.leader != nil {
		s.leader.leave(s.leaveAfter)
	}
	s.leader = next
	close(s.changed)
	s.changed = make(chan struct{})
}

// doubt makes askWhereInDoubt ask the API server who leads.
func (s *servers) doubt() { informer.Poke(s.doubts) }

func (s *servers) askWhereInDoubt(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.doubts:
		}
		if term, err := s.terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{}); err == nil {
			s.mu.Lock()
			s.follow(&term.Spec)
			s.mu.Unlock()
		}
		if !informer.Pause(ctx, askAfter) {
			return
		}
	}
}

// keepEntry writes this server's entry, and renews it. The leader also removes entries that were not renewed.
func (s *servers) keepEntry(ctx context.Context) {
	wait := renewEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		case <-time.After(wait):
		}
		wait = renewEvery
		if err := s.writeEntry(ctx); err != nil && ctx.Err() == nil {
			wait = askAfter * 10
			if !apierrors.IsNotFound(err) { // no server has led yet
				s.o.Log.WithError(err).
					Warn("could not tell the other servers of this one, so it can pass nothing on to them; will try again. If this " +
						"stays: the server needs the rights in manifests/base/rbac.yaml")
			}
		}
	}
}

func (s *servers) writeEntry(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		term, err := s.terms.Get(ctx, v1alpha1.LedgerTermName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		term.Status.Servers = slices.DeleteFunc(term.Status.Servers, func(one v1alpha1.LedgerServer) bool {
			return one.Name == s.o.Name || (s.o.Leads() == "" && s.isStale(&one))
		})
		if len(term.Status.Servers) >= v1alpha1.MaxServers {
			return fmt.Errorf("LedgerTerm %s lists %d servers already, as many as it may", term.Name, v1alpha1.MaxServers)
		}
		term.Status.Servers = append(term.Status.Servers, v1alpha1.LedgerServer{
			Name: s.o.Name, PublicKey: s.key.Public, Renewed: metav1.NowMicro(),
		})
		_, err = s.terms.UpdateStatus(ctx, term, metav1.UpdateOptions{})
		return err
	})
}

// isStale reports whether an entry has said the same for too long, by this server's clock: those of others may differ.
func (s *servers) isStale(one *v1alpha1.LedgerServer) bool {
	last, known := s.renewed[one.Name]
	if !known || !last.said.Equal(&one.Renewed) {
		s.renewed[one.Name] = renewal{one.Renewed, time.Now()}
		return false
	}
	return time.Since(last.since) > forgetAfter
}

package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// askAgain is how often the API server is asked which kinds it knows. askSoon is the pause where no answer came, or
// where the last one is in doubt.
const (
	askAgain = 10 * time.Second
	askSoon  = time.Second
)

// Definitions knows which kinds of one group and version the API server has. Make it with NewDefinitions.
type Definitions struct {
	client discovery.DiscoveryInterfaceWithContext
	group  schema.GroupVersion
	log    logrus.FieldLogger
	doubts chan struct{}

	mu      sync.Mutex // guards what follows
	known   []string   // plural names; nil before the first answer
	changed chan struct{}
}

// NewDefinitions returns Definitions that know nothing until they run.
func NewDefinitions(client discovery.DiscoveryInterfaceWithContext, group schema.GroupVersion,
	log logrus.FieldLogger,
) *Definitions {
	return &Definitions{
		client: client, group: group, log: log, doubts: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
}

// Run goes on asking the API server until ctx ends.
func (d *Definitions) Run(ctx context.Context) error {
	for {
		wait := askAgain
		if err := d.ask(ctx); err != nil && ctx.Err() == nil {
			d.log.WithError(err).Warnf("could not ask the API server for the definitions of %s; will ask again", d.group.Group)
			wait = askSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-d.doubts:
			if !Pause(ctx, askSoon) { // a kind that goes is doubted by many at once
				return nil
			}
		}
	}
}

func (d *Definitions) ask(ctx context.Context) error {
	known := []string{}
	list, err := d.client.ServerResourcesForGroupVersionWithContext(ctx, d.group.String())
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	default:
		for i := range list.APIResources {
			known = append(known, list.APIResources[i].Name)
		}
		slices.Sort(known)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || !slices.Equal(known, d.known) {
		d.known = known
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return nil
}

// Kind returns kinds that are of use together only, by their plural names.
func (d *Definitions) Kind(plurals ...string) *Kind { return &Kind{definitions: d, plurals: plurals} }

// Kind is one kind of objects, or several that are of use together only.
type Kind struct {
	definitions *Definitions
	plurals     []string
}

// state is what is known of a kind.
type state int

const (
	unknown state = iota // the API server has not answered yet
	absent
	installed
)

// Installed reports whether the API server knows the kind, by its last answer; false before there is one.
func (k *Kind) Installed() bool {
	now, _ := k.state()
	return now == installed
}

// Absent reports whether the API server has said that it does not know the kind: as long as it does not answer there
// may be objects of it.
func (k *Kind) Absent() bool {
	now, _ := k.state()
	return now == absent
}

// Doubt makes Run ask the API server again soon: an answer of it contradicted what Installed says.
func (k *Kind) Doubt() { Poke(k.definitions.doubts) }

// next returns the state once it differs from was, or ctx ends.
func (k *Kind) next(ctx context.Context, was state) state {
	for {
		now, changed := k.state()
		if now != was || ctx.Err() != nil {
			return now
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// state returns the state, and a channel that is closed when there is news.
func (k *Kind) state() (now state, changed <-chan struct{}) {
	d := k.definitions
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.known == nil:
		return unknown, d.changed
	case slices.ContainsFunc(k.plurals, func(p string) bool { return !slices.Contains(d.known, p) }):
		return absent, d.changed
	default:
		return installed, d.changed
	}
}

// Poke sends to a channel with room for one, unless something is in it: whoever receives from it looks at all there is.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pause waits and reports whether ctx lasts.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

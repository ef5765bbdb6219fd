package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// ComparerOptions configures a Comparer. All fields are needed.
type ComparerOptions struct {
	// Interval is the time between looks at the cache, LiveInterval that between
	// looks that list everything from the API server.
	Interval, LiveInterval time.Duration
	// OnDrift is called after every look with how many differences of each kind there were, including 0, and including
	// those of earlier looks that could not be repaired. After a look that could not read all it had to, it is not
	// called with 0. It must not call the Comparer.
	OnDrift func(kind Kind, differences int)
	Logger  logrus.FieldLogger
}

const (
	// grace is for how long an allocation may be ahead of the cache before the API server is asked about its pod.
	grace = 15 * time.Second
	// maxLookups is how many single objects one look asks the API server for. The rest waits for the next look.
	maxLookups = 200
	// maxLogged is how many differences of one look are logged one by one.
	maxLogged = 50
)

// Comparer checks the ledger against the cluster. What it finds is only a suspicion: changes are always under way. A
// suspicion that is still there at a later look is judged under the cache's lock, and where the cache may merely be
// behind, by asking the API server. What remains is counted, logged and repaired.
type Comparer struct {
	cache   *Cache
	ledger  ledger.Observer
	client  kubernetes.Interface
	options ComparerOptions
	log     logrus.FieldLogger
	now     func() time.Time

	suspects map[suspicion]suspect
}

// suspicion is one difference to look at again. It is the same one at the next
// look only if the same pod, or node, differs in the same way.
type suspicion struct {
	kind Kind
	pod  ledger.PodRef // empty for nodes
	node string        // empty for pods
	live bool          // only the API server knows
}

// source is where a suspicion was found.
type source uint8

const (
	inCache source = iota // every look finds it again while it is true
	inList                // only a look with a live list does
)

// suspect is since when there has been a suspicion, and how it came up.
type suspect struct {
	since  time.Time
	source source
}

// NewComparer makes a Comparer of the cache's ledger. client is used for live reads. It starts nothing.
func NewComparer(c *Cache, client kubernetes.Interface, o ComparerOptions) *Comparer {
	return &Comparer{
		cache: c, ledger: c.ledger, client: client, options: o, log: o.Logger, now: time.Now,
		suspects: map[suspicion]suspect{},
	}
}

// Run looks until ctx ends. Looks before the cache is synced are left out. Of a pod that was made, bound and deleted
// in a gap of the watch no watch and no list shows anything: after a gap there are two more looks, in which such a pod
// is suspected and judged.
func (c *Comparer) Run(ctx context.Context) error {
	looks, lists := time.NewTicker(c.options.Interval), time.NewTicker(c.options.LiveInterval)
	defer looks.Stop()
	defer lists.Stop()
	gaps, second := c.cache.gaps, (<-chan time.Time)(nil) // one of them is nil
	for {
		live, gap, judges := false, false, false
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
		case <-lists.C:
			live = true
		case <-gaps:
			gap = true
		case <-second:
			gaps, second, judges = c.cache.gaps, nil, true
		}
		err := c.look(ctx, live)
		if err != nil && ctx.Err() == nil {
			c.log.WithError(err).Warn("the ledger could not be compared with the API server; trying again at the next look")
		}
		if gap || judges && err != nil {
			gaps, second = nil, time.After(grace+time.Second)
		}
	}
}

// look finds suspicions and judges those that have been there before. With live
// it lists the cluster from the API server too.
func (c *Comparer) look(ctx context.Context, live bool) error {
	if !c.cache.Synced() {
		return nil
	}
	now := c.now()
	found, err := c.find(ctx, live)
	differences, judgeErr := c.judgeAll(ctx, c.ripe(found, now))
	err = errors.Join(err, judgeErr)
	c.report(differences, err == nil)
	return err
}

// ripe merges what a look found into what is suspected and returns what has been
// suspected for long enough to be judged, oldest first.
func (c *Comparer) ripe(found map[suspicion]source, now time.Time) []suspicion {
	var ripe []suspicion
	for s, known := range c.suspects {
		if _, again := found[s]; !again && known.source == inCache {
			delete(c.suspects, s)
			continue
		}
		if !s.live || now.Sub(known.since) >= grace {
			ripe = append(ripe, s)
		}
	}
	slices.SortFunc(ripe, func(a, b suspicion) int { return c.suspects[a].since.Compare(c.suspects[b].since) })
	for s, src := range found {
		if _, ok := c.suspects[s]; !ok {
			c.suspects[s] = suspect{since: now, source: src}
		}
	}
	return ripe
}

// find looks at the cache and, with live, at the API server. Where the live list
// fails, what the cache showed is returned with the error.
func (c *Comparer) find(ctx context.Context, live bool) (map[suspicion]source, error) {
	found := map[suspicion]source{}
	allocated := c.findInCache(found, live)
	if !live {
		return found, nil
	}
	if err := c.findLive(ctx, found, allocated); err != nil {
		return found, fmt.Errorf("listing the cluster: %w", err)
	}
	return found, nil
}

// report counts differences by kind and logs them. A look that was not complete reports only what it found.
func (c *Comparer) report(differences []Difference, complete bool) {
	counts := map[Kind]int{}
	for i, d := range differences {
		counts[d.Kind]++
		if i == maxLogged {
			c.log.WithField("more", len(differences)-i).
				Warn("more differences between the ledger and the cluster are not logged one by one")
		}
		if i >= maxLogged {
			continue
		}
		log := c.log.WithFields(logrus.Fields{
			"kind": string(d.Kind), "node": d.Node, "ledger": d.Ledger, "cluster": d.Cluster, "live": d.Live,
		})
		if d.Pod.Name != "" {
			log = log.WithFields(podFields(d.Pod))
		}
		if d.Repaired {
			log.Warn("the ledger differed from the cluster and was repaired")
		} else {
			log.Error("the ledger differs from the cluster in a way that an observation cannot repair; if the API server's " +
				"data was restored from a backup, restart this server")
		}
	}
	for _, kind := range allKinds {
		if complete || counts[kind] > 0 {
			c.options.OnDrift(kind, counts[kind])
		}
	}
}

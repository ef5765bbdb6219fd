package account

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// apiServer is what the account's rules are made for: writes are made only on the newest state, some of those that
// were allowed are not made, states are seen late.
type apiServer struct {
	version int64
	states  map[string]*resourcev1.ResourceClaim
	writes  []write // allowed, and neither made nor refused yet
	watch   []*resourcev1.ResourceClaim
}

type write struct {
	claim *resourcev1.ResourceClaim
	base  int64
	at    time.Time
}

func (s *apiServer) store(c *resourcev1.ResourceClaim) {
	s.version++
	c = c.DeepCopy()
	c.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.states[c.Name] = c
	s.watch = append(s.watch, c)
}

// commit makes one of the writes, or does not.
func (s *apiServer) commit(t *rapid.T) {
	if len(s.writes) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.writes)-1).Draw(t, "write")
	w := s.writes[i]
	s.writes = append(s.writes[:i:i], s.writes[i+1:]...)
	made := rapid.IntRange(0, 3).Draw(t, "made") > 0
	if made && Version(s.states[w.claim.Name].ResourceVersion) == w.base {
		s.store(w.claim)
	}
}

// oldest is when the first of the writes was asked for that can still be made.
func (s *apiServer) oldest(now time.Time) time.Time {
	for _, w := range s.writes {
		if w.at.Before(now) {
			now = w.at
		}
	}
	return now
}

// Schedulers that know nothing of each other allocate what they like. What is stored has no double, at any time.
func TestNoWriteMakesADouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, truth, now := New(), newModel(), start
		server := &apiServer{states: map[string]*resourcev1.ResourceClaim{}}
		for _, s := range []*resourcev1.ResourceSlice{
			countersOf("c", 1, 2, "4"),
			sliceOf("s", 1, 2, shareable("gpu-0", "4"), partition("gpu-1", "2"), partition("gpu-2", "2"),
				partition("gpu-3", "3")),
		} {
			a.ObserveSlice(s)
			truth.slices[s.Name] = s
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			server.store(state(name, 0))
		}
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				old := server.states[claims.Draw(t, "claim")]
				base := Version(old.ResourceVersion)
				asked := state(old.Name, 0, drawResults(t)...)
				if old.Status.Allocation != nil || asked.Status.Allocation == nil {
					return
				}
				if a.Grant(asked, base, now) == nil {
					server.writes = append(server.writes, write{asked, base, now})
				}
			},
			"commit":       server.commit,
			"commit later": server.commit,
			"end": func(t *rapid.T) {
				server.store(state(claims.Draw(t, "claim"), 0)) // deallocated, or only another revision
			},
			"see": func(*rapid.T) {
				if len(server.watch) > 0 {
					a.ObserveClaim(server.watch[0])
					server.watch = server.watch[1:]
				}
			},
			"see all": func(*rapid.T) {
				for _, c := range server.watch {
					a.ObserveClaim(c)
				}
				server.watch = nil
			},
			"give up": func(t *rapid.T) {
				if len(server.watch) == 0 {
					a.GiveUp(types.UID(claims.Draw(t, "claim")), server.oldest(now))
				}
			},
			"": func(t *rapid.T) {
				now = now.Add(time.Second)
				for name, c := range server.states {
					truth.claims[name] = &modelClaim{allocated: resultsOf(c)}
				}
				require.Empty(t, truth.doubles())
				require.NoError(t, a.checkInvariants())
			},
		})
	})
}

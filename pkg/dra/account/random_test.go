package account

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestMain makes runs long enough for pools to be full and free again. -rapid.steps and -rapid.checks ask for more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.steps": "80", "rapid.checks": "300", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

var (
	names      = rapid.SampledFrom([]string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"})
	nodes      = rapid.SampledFrom([]string{"node-1", "node-2", ""})
	claims     = rapid.SampledFrom([]string{"a", "b", "c", "d"})
	quantities = rapid.SampledFrom([]string{"0", "1", "2", "2500m", "3", "4"})
)

// drawClaim draws a claim that has up to three results.
func drawClaim(t *rapid.T, version int) *resourcev1.ResourceClaim {
	results := make([]resourcev1.DeviceRequestAllocationResult, rapid.IntRange(0, 3).Draw(t, "results"))
	for i := range results {
		results[i] = whole(names.Draw(t, "device"))
		if rapid.IntRange(0, 2).Draw(t, "shared") > 0 {
			results[i] = share(results[i].Device, quantities.Draw(t, "consumed"))
		}
		if rapid.IntRange(0, 9).Draw(t, "admin") == 0 {
			results[i].AdminAccess = ptr.To(true)
		}
	}
	return state(claims.Draw(t, "claim"), version, results...)
}

func drawSlice(t *rapid.T) *resourcev1.ResourceSlice {
	name := rapid.SampledFrom([]string{"s-0", "s-1", "s-2", "s-3"}).Draw(t, "slice")
	s := sliceOf(name, rapid.Int64Range(1, 2).Draw(t, "generation"), rapid.Int64Range(1, 2).Draw(t, "count"))
	s.Spec.NodeName = ptr.To(nodes.Draw(t, "node"))
	if rapid.IntRange(0, 3).Draw(t, "counters") == 0 {
		s.Spec.SharedCounters = countersOf("", 0, 0, quantities.Draw(t, "limit")).Spec.SharedCounters
		return s
	}
	for _, name := range rapid.SliceOfNDistinct(names, 0, 4, rapid.ID[string]).Draw(t, "devices") {
		d := resourcev1.Device{Name: name}
		if rapid.IntRange(0, 2).Draw(t, "shareable") > 0 {
			d = shareable(name, quantities.Draw(t, "capacity"))
		}
		if rapid.IntRange(0, 2).Draw(t, "charges") == 0 {
			d.ConsumesCounters = partition("", quantities.Draw(t, "charge")).ConsumesCounters
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

// Whatever came in whatever order: when all grants are decided, the account says and decides what one does that has
// observed only the last state of everything, and keeps no more.
func TestNothingIsLeftOfWhatWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, published, states := New(), map[string]*resourcev1.ResourceSlice{}, map[string]*resourcev1.ResourceClaim{}
		version := 1
		t.Repeat(map[string]func(*rapid.T){
			"slice": func(t *rapid.T) {
				s := drawSlice(t)
				a.ObserveSlice(s)
				published[s.Name] = s
			},
			"forget slice": func(t *rapid.T) {
				name := drawSlice(t).Name
				a.ForgetSlice(name)
				delete(published, name)
			},
			"claim": func(t *rapid.T) {
				version++
				c := drawClaim(t, version)
				a.ObserveClaim(c)
				states[c.Name] = c
			},
			"forget claim": func(t *rapid.T) {
				name := claims.Draw(t, "claim")
				a.ForgetClaim(types.UID(name))
				delete(states, name)
			},
			"grant": func(t *rapid.T) { a.Grant(drawClaim(t, 0), int64(version), start) },
			"": func(t *rapid.T) {
				if slices.ContainsFunc(a.AppendDevices(nil), func(d DeviceState) bool {
					return slices.ContainsFunc(d.Owners, func(o DeviceOwner) bool { return o.State == Granted })
				}) && rapid.Bool().Draw(t, "go on") {
					return
				}
				for _, name := range []string{"a", "b", "c", "d"} {
					a.GiveUp(types.UID(name), start.Add(1))
				}
				anew := New()
				for _, s := range published {
					anew.ObserveSlice(s)
				}
				for _, c := range states {
					anew.ObserveClaim(c)
				}
				require.True(t, equality.Semantic.DeepEqual(anew.AppendDevices(nil), a.AppendDevices(nil)))
				require.Equal(t, anew.Doubles(), a.Doubles())
				on := slices.DeleteFunc(anew.AppendDevices(nil), func(d DeviceState) bool { return d.Node != "node-1" })
				require.True(t, equality.Semantic.DeepEqual(on, a.OnNode("node-1")))
				asked := drawClaim(t, 0)
				want, got := anew.Try(asked, int64(version)), a.Try(asked, int64(version))
				require.True(t, equality.Semantic.DeepEqual(want, got), "%v, not %v", got, want)
				require.Equal(t, []int{len(anew.claims), len(anew.pools)}, []int{len(a.claims), len(a.pools)})
			},
		})
	})
}

// apiServer is what the account's rules are made for: writes are made only on the newest state, some of those that
// were allowed are not made, states are seen late.
type apiServer struct {
	version int
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
	c.ResourceVersion = strconv.Itoa(s.version)
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
	s.writes = slices.Delete(s.writes, i, i+1)
	made := rapid.IntRange(0, 3).Draw(t, "made") > 0
	if made && Version(s.states[w.claim.Name].ResourceVersion) == w.base {
		s.store(w.claim)
	}
}

// see has the account see so many of the states that it has not.
func (s *apiServer) see(a *Account, count int) {
	for _, c := range s.watch[:count] {
		a.ObserveClaim(c)
	}
	s.watch = s.watch[count:]
}

// Schedulers that know nothing of each other allocate what they like. What is stored has no double, at any time.
func TestNoWriteMakesADouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, truth, now := New(), New(), start
		server := &apiServer{states: map[string]*resourcev1.ResourceClaim{}}
		for _, account := range []*Account{a, truth} {
			account.ObserveSlice(countersOf("c", 1, 2, "4"))
			account.ObserveSlice(sliceOf("s", 1, 2, shareable("gpu-0", "4"), partition("gpu-1", "2"), partition("gpu-2", "2"),
				partition("gpu-3", "3")))
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			server.store(state(name, 0))
		}
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				asked := drawClaim(t, 0)
				old := server.states[asked.Name]
				base := Version(old.ResourceVersion)
				if old.Status.Allocation == nil && asked.Status.Allocation != nil && a.Grant(asked, base, now) == nil {
					server.writes = append(server.writes, write{asked, base, now})
				}
			},
			"commit":       server.commit,
			"commit later": server.commit,
			"end": func(t *rapid.T) {
				server.store(state(claims.Draw(t, "claim"), 0)) // deallocated, or only another revision
			},
			"see":     func(*rapid.T) { server.see(a, min(1, len(server.watch))) },
			"see all": func(*rapid.T) { server.see(a, len(server.watch)) },
			"give up": func(t *rapid.T) {
				if len(server.watch) > 0 {
					return
				}
				oldest := now
				for _, w := range server.writes { // that can still be made
					if w.at.Before(oldest) {
						oldest = w.at
					}
				}
				a.GiveUp(types.UID(claims.Draw(t, "claim")), oldest)
			},
			"": func(*rapid.T) {
				now = now.Add(time.Second)
				for _, c := range server.states {
					truth.ObserveClaim(c)
				}
				require.Empty(t, truth.Doubles())
			},
		})
	})
}

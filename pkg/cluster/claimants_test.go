package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// claimant is a pod that names claims.
func claimant(namespace, name string, claims ...string) *Pod {
	return &Pod{
		Ref: ledger.PodRef{Namespace: namespace, Name: name}, Devices: &DeviceAnnotations{Claims: claims},
	}
}

// A server that takes over tells of every claim there is: each time only the pods are looked at that name the claim.
func TestOneClaimIsNoWalkOverAllClaimants(t *testing.T) {
	c := newCache()
	asked := 0
	c.options.Devices = func(*Pod) *ledger.DeviceRequest {
		asked++
		return nil
	}
	pod := claimant("ns", "p", "shared", "own")
	pod.Node = "n"
	c.Pods.Put(pod)
	for i := range 10 {
		other := claimant("ns", fmt.Sprint("other-", i), fmt.Sprint("claim-", i))
		c.Pods.Put(other)
		other.Devices = nil // who looks for its claims panics
	}
	require.NotPanics(t, func() {
		c.ObserveClaimants("ns", "own")
		c.ObserveClaimants("ns", "none")
		c.ObserveClaimants("elsewhere", "own")
	})
	assert.Equal(t, 1, asked)
}

// TestClaimantsAtRandom compares what is kept by claim and by namespace with what all pods say, after any changes.
func TestClaimantsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	namespaces, claims := []string{"a", "b", "c"}, []string{"x", "y", "z", ""}
	pods, held := NewPods(), map[podKey]*Pod{}
	for range 3000 {
		k := podKey{namespaces[random.IntN(3)], fmt.Sprint(random.IntN(8))}
		if now := held[k]; now != nil && random.IntN(4) == 0 {
			pods.Remove(now)
			delete(held, k)
		} else {
			held[k] = randomClaimant(random, k, claims)
			pods.Put(held[k])
		}
		var all []*Pod
		for _, namespace := range namespaces {
			var in []*Pod
			of := map[string][]*Pod{}
			for k, p := range held {
				if k.namespace != namespace || p.Devices == nil || len(p.Devices.Claims) == 0 {
					continue
				}
				in = append(in, p)
				for _, claim := range p.Devices.Claims {
					of[claim] = append(of[claim], p)
				}
			}
			for _, claim := range claims {
				require.ElementsMatch(t, of[claim], pods.ClaimantsOf(namespace, claim))
			}
			require.ElementsMatch(t, in, pods.Claimants(namespace))
			all = append(all, in...)
		}
		require.ElementsMatch(t, all, pods.Claimants(""))
	}
}

// randomClaimant is a pod that names some claims, or has devices without, or cannot be read, or says nothing of them.
func randomClaimant(random *rand.Rand, k podKey, claims []string) *Pod {
	var names []string
	for _, claim := range claims {
		if random.IntN(2) == 0 {
			names = append(names, claim)
		}
	}
	switch p := claimant(k.namespace, k.name, names...); random.IntN(8) {
	case 0:
		p.Devices = nil
		return p
	case 1:
		p.Devices = &DeviceAnnotations{Given: "GPU-0"}
		return p
	case 2:
		p.Devices = &DeviceAnnotations{Err: "it cannot be read"}
		return p
	default:
		return p
	}
}

// Nearly all pods name no claims: nothing is kept of them. Nothing is left of one that named some, either.
func TestNothingIsKeptOfPodsWithoutClaims(t *testing.T) {
	pods := NewPods()
	for _, marks := range []*DeviceAnnotations{nil, {Given: "GPU-0"}, {Err: "it cannot be read"}} {
		pod := claimant("ns", "p", "c")
		pods.Put(pod)
		pod = claimant("ns", "p")
		pod.Devices = marks
		pods.Put(pod)
		assert.Empty(t, pods.claimants)
	}
	first, second := claimant("ns", "p", "c", "d"), claimant("ns", "q", "d")
	pods.Put(first)
	pods.Put(second)
	pods.Remove(first)
	assert.Equal(t, []*Pod{second}, pods.ClaimantsOf("ns", "d"))
	pods.Remove(second)
	assert.Empty(t, pods.claimants)
}

// BenchmarkClaimants is what a change of a claim costs for those that name claims: all of them name one of their own.
func BenchmarkClaimants(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		pods := NewPods()
		for i := range n {
			name := fmt.Sprintf("trainer-%06d", i)
			pods.Put(claimant(fmt.Sprint("team-", i%1000), name, name+"-gpu"))
		}
		b.Run(fmt.Sprintf("claim of %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(pods.ClaimantsOf("team-7", "trainer-000007-gpu")) != 1 {
					b.Fatal("it has one claimant")
				}
			}
		})
		b.Run(fmt.Sprintf("namespace of %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(pods.Claimants("team-7")) != n/1000 {
					b.Fatal("they are spread over 1,000 namespaces")
				}
			}
		})
		b.Run(fmt.Sprintf("pod of %d", n), func(b *testing.B) {
			states := []*Pod{claimant("team-7", "trainer-000007", "one"), claimant("team-7", "trainer-000007", "two")}
			b.ReportAllocs()
			for b.Loop() {
				pods.Put(states[0])
				slices.Reverse(states)
			}
		})
	}
}

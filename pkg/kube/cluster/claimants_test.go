package cluster

import (
	"fmt"
	"math/rand/v2"
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
		var named []string // claims: of the others nothing is kept
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
			for claim := range of {
				named = append(named, namespace+"/"+claim)
			}
		}
		require.ElementsMatch(t, named, pods.claimants.ListIndexFuncValues(byClaim))
		require.ElementsMatch(t, all, pods.Claimants(""))
	}
	for _, p := range held {
		pods.Remove(p)
	}
	assert.Empty(t, pods.claimants.ListKeys())
}

// randomClaimant is a pod that names some claims, or has devices without, or cannot be read, or says nothing of them.
func randomClaimant(random *rand.Rand, k podKey, claims []string) *Pod {
	var names []string
	for _, claim := range claims {
		if random.IntN(2) == 0 {
			names = append(names, claim)
		}
	}
	p := claimant(k.namespace, k.name, names...)
	switch random.IntN(8) {
	case 0:
		p.Devices = nil
	case 1:
		p.Devices = &DeviceAnnotations{Given: "GPU-0"}
	case 2:
		p.Devices = &DeviceAnnotations{Err: "it cannot be read"}
	}
	return p
}

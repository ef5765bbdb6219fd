package account

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	pools      = rapid.SampledFrom([]string{"node-1", "node-2"})
	names      = rapid.SampledFrom([]string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"})
	claims     = rapid.SampledFrom([]string{"a", "b", "c", "d"})
	quantities = rapid.SampledFrom([]string{"0", "1", "2", "2500m", "3", "4"})
)

func drawResults(t *rapid.T) []resourcev1.DeviceRequestAllocationResult {
	results := make([]resourcev1.DeviceRequestAllocationResult, rapid.IntRange(0, 3).Draw(t, "results"))
	for i := range results {
		results[i] = whole(names.Draw(t, "device"))
		if rapid.IntRange(0, 2).Draw(t, "shared") > 0 {
			results[i] = share(results[i].Device, quantities.Draw(t, "consumed"))
			results[i].ShareID = ptr.To(types.UID(strconv.Itoa(i)))
		}
		results[i].Pool = pools.Draw(t, "pool")
		if rapid.IntRange(0, 9).Draw(t, "admin") == 0 {
			results[i].AdminAccess = ptr.To(true)
		}
	}
	return results
}

func drawSlice(t *rapid.T) *resourcev1.ResourceSlice {
	name := rapid.SampledFrom([]string{"s-0", "s-1", "s-2", "s-3"}).Draw(t, "slice")
	s := sliceOf(name, rapid.Int64Range(1, 2).Draw(t, "generation"), rapid.Int64Range(1, 2).Draw(t, "count"))
	s.Spec.Pool.Name = "node-" + string(rapid.SampledFrom([]rune("12")).Draw(t, "pool"))
	s.Spec.NodeName = rapid.SampledFrom([]*string{nil, ptr.To("node-1"), ptr.To("node-2")}).Draw(t, "node")
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

// Whatever comes in whatever order, the account says what the model says.
func TestAccountAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, m, now := New(), newModel(), start
		versions := rapid.Int64Range(1, 12)
		t.Repeat(map[string]func(*rapid.T){
			"slice": func(t *rapid.T) {
				s := drawSlice(t)
				a.ObserveSlice(s)
				m.slices[s.Name] = s
			},
			"forget slice": func(t *rapid.T) {
				name := drawSlice(t).Name
				a.ForgetSlice(name)
				delete(m.slices, name)
			},
			"claim": func(t *rapid.T) {
				c := state(claims.Draw(t, "claim"), int(versions.Draw(t, "version")), drawResults(t)...)
				a.ObserveClaim(c)
				m.observe(c)
			},
			"forget claim": func(t *rapid.T) {
				name := claims.Draw(t, "claim")
				a.ForgetClaim(types.UID(name))
				delete(m.claims, name)
			},
			"grant": func(t *rapid.T) {
				c := state(claims.Draw(t, "claim"), 0, drawResults(t)...)
				grantBoth(t, a, m, c, versions.Draw(t, "base"), now)
			},
			"grant the same": func(t *rapid.T) {
				name := claims.Draw(t, "claim")
				if all := m.claim(name).alternatives(); len(all) > 1 {
					same := all[rapid.IntRange(1, len(all)-1).Draw(t, "grant")]
					grantBoth(t, a, m, state(name, 0, same...), versions.Draw(t, "base"), now)
				}
			},
			"give up": func(t *rapid.T) {
				before := start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "before")) * time.Second)
				name := claims.Draw(t, "claim")
				a.GiveUp(types.UID(name), before)
				m.giveUp(name, before)
			},
			"": func(t *rapid.T) {
				now = now.Add(time.Second)
				require.Equal(t, m.report(), report(a))
				require.NoError(t, a.checkInvariants())
			},
		})
	})
}

func grantBoth(t *rapid.T, a *Account, m *model, c *resourcev1.ResourceClaim, base int64, now time.Time) {
	refusal := a.Grant(c, base, now)
	granted := m.grant(c, base, now)
	if refusal != nil {
		require.NotEmpty(t, refusal.Message())
		require.False(t, granted, refusal.Message())
	}
	require.Equal(t, granted, refusal == nil)
}

// checkInvariants computes what the account keeps as sums.
func (a *Account) checkInvariants() error {
	for key, p := range a.pools {
		if len(p.slices) == 0 && len(p.devices) == 0 {
			return fmt.Errorf("pool %v is kept for nothing", key)
		}
		unpublished, charged := 0, map[*counter]*resource.Quantity{}
		for _, c := range p.counters {
			charged[c] = &resource.Quantity{}
		}
		for name, d := range p.devices {
			if d.published == nil && len(d.owners) == 0 {
				return fmt.Errorf("device %s is kept for nothing", name)
			}
			var used amounts
			for i := range d.owners {
				used.add(d.owners[i].consumed)
			}
			for i := range d.used {
				if sum := used.value(d.used[i].name); sum.Cmp(d.used[i].quantity) != 0 {
					return fmt.Errorf("device %s: %s is used, not %s", name, sum.String(), d.used[i].quantity.String())
				}
			}
			if len(d.owners) > 0 && d.published == nil {
				unpublished++
			}
			if len(d.owners) > 0 && d.published != nil {
				for _, l := range d.published.charges {
					charged[l.counter].Add(l.quantity)
				}
			}
		}
		if p.unpublished != unpublished {
			return fmt.Errorf("pool %v: %d devices are had and not published, not %d", key, unpublished, p.unpublished)
		}
		for c, sum := range charged {
			if c.used.Cmp(*sum) != 0 {
				return fmt.Errorf("counter %s: %s is used, not %s", c.key, sum.String(), c.used.String())
			}
		}
	}
	for _, c := range a.claims {
		for holdings := range c.allocations {
			for _, h := range holdings {
				if p := a.pools[h.device.pool.key]; p == nil || p.devices[h.device.name.Value()] != h.device {
					return fmt.Errorf("claim %s has device %s, which has no entry", c.name, h.device.key())
				}
			}
		}
	}
	return nil
}

// report is what model.report is, of the account.
func report(a *Account) []string {
	var lines []string
	onNodes, doubles := map[string][]DeviceState{}, map[Device]bool{}
	for _, double := range a.Doubles() {
		doubles[double.Device] = true
	}
	for _, d := range a.AppendDevices(nil) {
		if d.Double != doubles[d.Device] {
			lines = append(lines, fmt.Sprintf("%s says double=%t", d.Device, d.Double))
		}
		if d.Node != "" {
			onNodes[d.Node] = append(onNodes[d.Node], d)
		}
		lines = append(lines, fmt.Sprintf("device %s published=%t", d.Device, d.Published))
		for _, o := range d.Owners {
			lines = append(lines, fmt.Sprintf("owner %s of %s allocated=%t whole=%t", o.Name, d.Device, o.State == Allocated,
				o.Shares == 0))
		}
		for _, use := range d.Capacity {
			lines = append(lines, fmt.Sprintf("use %s of %s: %s of %s", use.Name, d.Device, use.Used.String(),
				use.Limit.String()))
		}
	}
	for _, double := range a.Doubles() {
		line := fmt.Sprintf("double %s of %s %s", double.Reason, double.Device, double.Resource)
		if double.Reason != CountersExceeded {
			line += fmt.Sprintf(" %d", len(double.Owners))
		}
		lines = append(lines, line)
	}
	for node, devices := range onNodes {
		if on := a.OnNode(node); !reflect.DeepEqual(on, devices) {
			lines = append(lines, fmt.Sprintf("on %s are %v and not %v", node, on, devices))
		}
	}
	slices.Sort(lines)
	return lines
}

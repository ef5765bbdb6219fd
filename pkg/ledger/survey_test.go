package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestSurvey chooses nodes for pods one next to the other, and gives all of it back.
func TestSurvey(t *testing.T) {
	l := ledger.New(ledger.Options{})
	for node, cpu := range map[string]int64{"a-large": 8000, "b-half": 4000, "c-gpu": 4000} {
		l.ObserveNode(offer(node, cpu, 8<<30, 10))
	}
	cordoned := offer("d-cordoned", 1000, 8<<30, 10)
	cordoned.Unschedulable = true
	l.ObserveNode(cordoned)
	var gpus []devices.Device
	for k, model := range []string{"K80", "P100"} {
		id := string(rune('0' + k))
		gpus = append(gpus, devices.Device{
			Name: "gpu-" + id, Resource: "gpu", ID: id,
			Properties: map[string]string{"model": model},
		})
	}
	l.ObserveDevices("c-gpu", gpus)
	l.ObservePod(ledger.PodObservation{Pod: podRef("bound"), Node: "b-half", Request: request(2000, 0, hostPort(80))})

	all := func(string) bool { return true }
	but := func(not string) func(string) bool { return func(node string) bool { return node != not } }
	ask := func(cpu int64, ports ...int32) *ledger.Placement {
		p := &ledger.Placement{Pod: podRef("asking"), Request: request(cpu, 0)}
		for _, port := range ports {
			p.Request.Ports = append(p.Request.Ports, hostPort(port))
		}
		return p
	}
	withGPU := func(claim, model string) *ledger.Placement {
		p := ask(100)
		p.Devices = wantGPU(t, claim, model)
		return p
	}
	s := l.Survey()
	take := func(node string, p *ledger.Placement) {
		p.Node = node
		s.Take(p)
	}
	assert.Equal(t, "b-half", s.BestFit(ask(1000), all), "where least is left over")
	assert.Equal(t, "c-gpu", s.BestFit(ask(1000), but("b-half")), "the next of those allowed")
	assert.Equal(t, "c-gpu", s.BestFit(ask(1000, 80), all), "a port is taken")
	assert.Equal(t, "c-gpu", s.BestFit(withGPU("any", ""), all), "the only one with devices")
	assert.Empty(t, s.BestFit(ask(8001), all))
	cpu := func(free int64, node string) []ledger.Lack {
		return []ledger.Lack{{Resource: "cpu", Requested: 8001, Largest: free, Node: node}}
	}
	assert.Equal(t, cpu(8000, "a-large"), s.Largest(ask(8001), all)[:1])
	assert.Equal(t, cpu(4000, "c-gpu"), s.Largest(ask(8001), but("a-large"))[:1])
	onlyCordoned := func(node string) bool { return node == "d-cordoned" }
	assert.Equal(t, cpu(0, ""), s.Largest(ask(8001), onlyCordoned)[:1])
	assert.Equal(t, "a-large", s.Closest(ask(8001)), "it lacks the smallest share")
	assert.Equal(t, "c-gpu", s.Closest(withGPU("a", "A100")), "it has devices of the kind")
	assert.Equal(t, "b-half", l.Survey(podRef("bound").UID).BestFit(ask(4000), all), "the pod that holds it is gone")

	take("b-half", ask(2000))
	take("c-gpu", ask(3500, 90))
	mark := s.Taken()
	assert.Equal(t, "a-large", s.BestFit(ask(1000), all))
	assert.Equal(t, "a-large", s.BestFit(ask(100, 90), all))
	take("c-gpu", withGPU("any", ""))
	assert.Equal(t, "c-gpu", s.BestFit(withGPU("choosy", "K80"), all), "the one before can have the other device")
	take("c-gpu", withGPU("choosy", "K80"))
	assert.Empty(t, s.BestFit(withGPU("more", ""), all), "both devices are taken")
	take("nowhere", ask(1))
	s.Undo(mark)
	assert.Equal(t, "c-gpu", s.BestFit(withGPU("more", "K80"), all))
	s.Undo(0)
	assert.Equal(t, "c-gpu", s.BestFit(ask(3500, 90), all))
	verdicts := map[string]ledger.Reason{}
	s.FitAll(ask(3000), func(node string, v ledger.Verdict) { verdicts[node] = v.Reason })
	assert.Equal(t, map[string]ledger.Reason{
		"a-large": ledger.Fits, "b-half": ledger.InsufficientResource, "c-gpu": ledger.Fits,
		"d-cordoned": ledger.NodeUnschedulable,
	}, verdicts)
}

// wantGPU asks for one GPU by a claim: of a model, or any where that is empty.
func wantGPU(t *testing.T, claim, model string) *ledger.DeviceRequest {
	spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "gpu", Count: 1}
	if model != "" {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	compiled, err := devices.Compile(nil, spec)
	require.NoError(t, err)
	return &ledger.DeviceRequest{
		Claims:   []ledger.DeviceClaimRef{{Namespace: "ns", Name: claim, UID: types.UID(claim)}},
		Requests: []*devices.Request{compiled},
	}
}

func TestNearest(t *testing.T) {
	l := ledger.New(ledger.Options{})
	for node, cpu := range map[string]int64{"small": 1000, "large": 8000} {
		l.ObserveNode(offer(node, cpu, 8<<30, 10))
	}
	l.ObservePod(ledger.PodObservation{Pod: podRef("bound"), Node: "large", Request: request(6000, 0)})
	ask := func(cpu int64, nodes ...string) *ledger.Rejection {
		return l.Nearest(&ledger.Placement{Pod: podRef("asking"), Request: request(cpu, 0)}, nodes)
	}
	assert.Nil(t, ask(2000, "small", "large"), "there is capacity by now")
	assert.Nil(t, ask(3000, "unknown"))
	nearest := ask(3000, "unknown", "small", "large")
	assert.Equal(t, ledger.Rejection{
		Pod: podRef("asking"), Node: "large", Reason: ledger.InsufficientResource, Resource: "cpu", Requested: 3000,
		Free:    2000,
		Holders: []ledger.Holder{{Pod: podRef("bound"), State: ledger.Bound, Amount: 6000}},
	}, *nearest)
	assert.Equal(t, "small", ask(3000, "small").Node)
	l.ObserveNode(offer("also-small", 1000, 8<<30, 10))
	assert.Equal(t, "also-small", ask(3000, "small", "also-small").Node, "by name, so that all servers name the same")
}

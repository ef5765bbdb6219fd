package extendeddevices

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// podOf is the pod that a claim's status names, which is empty where there is none.
func podOf(obj *v1alpha1.ExtendedResourceClaim) types.UID {
	if obj.Status.PodRef == nil {
		return ""
	}
	return obj.Status.PodRef.UID
}

// move keeps byPod in step with a claim whose status changes. s.mu is held.
func (s *claimSet) move(key types.NamespacedName, from, to types.UID) {
	if from == to {
		return
	}
	if s.byPod[from] = slices.DeleteFunc(s.byPod[from],
		func(k types.NamespacedName) bool { return k == key }); len(s.byPod[from]) == 0 {
		delete(s.byPod, from)
	}
	if to != "" {
		s.byPod[to] = append(s.byPod[to], key)
	}
}

// recorded returns the claims whose status, which servers write, says that a pod has their devices, by name.
func (s *claimSet) recorded(pod ledger.PodRef) (claims map[string]*claim) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, key := range s.byPod[pod.UID] {
		known := s.byKey[key]
		if key.Namespace != pod.Namespace || len(known.obj.Status.ExtendedResources) == 0 {
			continue
		}
		if claims == nil {
			claims = map[string]*claim{}
		}
		claims[key.Name] = known
	}
	return claims
}

// believed returns which devices a bound pod has. Many may edit the pod's annotations, and a server that was not there
// has not seen what they were. Few may write the status of a claim, so the status comes first. A claim can be deleted
// and made anew for another resource: what the pod has keeps the resource of its devices, whatever the claim asks for
// now.
func (c *Controller) believed(pod *cluster.Pod) *ledger.DeviceRequest {
	said, recorded := c.resolve(pod, pod.Devices), c.claims.recorded(pod.Ref)
	if said == nil && recorded == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case !c.listed:
		return nil // all are observed anew once it is
	case recorded == nil && c.devices.areAsked(pod.Node, said):
		return said
	case said == nil:
		said = &ledger.DeviceRequest{}
	}
	b := c.beliefOf(pod, said, recorded)
	names := make([]string, len(b.claims))
	for k := range b.claims {
		names[k] = b.claims[k].Claim.Name
	}
	request := c.resolve(pod, asAsked(pod.Ref, said.Asked, names))
	for k, ref := range request.Claims {
		b.claims[k].Claim = ref
	}
	if request.Recorded = b.claims; len(b.left) > 0 {
		of := c.devices.resourceOf(pod.Node, b.left, "")
		request.Recorded = append(request.Recorded, ledger.GivenDevices{Resource: of, IDs: b.left})
	}
	var ids []string
	for _, g := range request.Recorded {
		ids = append(ids, g.IDs...)
	}
	request.Given = strings.Join(ids, ",")
	return request
}

// belief is what a bound pod is believed to have.
type belief struct {
	devices *inventory
	node    string
	claims  []ledger.GivenDevices // what each claim has
	open    []int                 // those of the claims whose status does not name all that they have
	left    []string              // what the pod says beyond that
}

// beliefOf puts together what is recorded of the claims of a pod and what the pod says. What the pod says beyond that
// counts where a claim is open, as a server may end before it has written all down, and as far as the pod asks for
// devices by count.
func (c *Controller) beliefOf(pod *cluster.Pod, said *ledger.DeviceRequest, recorded map[string]*claim) *belief {
	b := &belief{devices: &c.devices, node: pod.Node}
	b.left = slices.DeleteFunc(strings.Split(said.Given, ","), func(id string) bool { return id == "" })
	named := map[string]bool{}
	for _, ref := range said.Claims {
		named[ref.Name] = true
		b.add(ref.Name, recorded[ref.Name])
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if !named[name] {
			b.add(name, recorded[name])
		}
	}
	if len(b.open) == 0 {
		b.left = b.left[:min(len(b.left), b.byCount(c.Ledger.Table(), pod.Request))]
	}
	b.share(said.Requests)
	b.claims = slices.DeleteFunc(b.claims, func(g ledger.GivenDevices) bool {
		return recorded != nil && recorded[g.Claim.Name] == nil && len(g.IDs) == 0 // it only names that one
	})
	return b
}

// add adds a claim with the devices that its status names; recorded is nil where that does not name the pod.
func (b *belief) add(name string, recorded *claim) {
	g := ledger.GivenDevices{Claim: ledger.DeviceClaimRef{Name: name}}
	all := recorded != nil && recorded.obj.Status.Phase == v1alpha1.ExtendedResourceClaimBound
	if recorded != nil {
		for _, object := range recorded.obj.Status.ExtendedResources {
			all = b.record(&g, b.devices.byName[object]) && all
		}
	}
	if !all {
		b.open = append(b.open, len(b.claims))
	}
	b.claims = append(b.claims, g)
}

// record adds a device to what a claim has. It returns false where there is no such device. Where the resource was not
// known when the status was written, the status names all devices with the ID, of several resources.
func (b *belief) record(g *ledger.GivenDevices, d *v1alpha1.ExtendedResource) bool {
	if d == nil || d.Spec.NodeName != b.node {
		return false
	}
	if len(g.IDs) == 0 {
		g.Resource = d.Spec.ResourceName
	} else if g.Resource != d.Spec.ResourceName {
		g.Resource = ""
	}
	if !slices.Contains(g.IDs, d.Spec.DeviceID) {
		g.IDs = append(g.IDs, d.Spec.DeviceID)
	}
	if k := slices.Index(b.left, d.Spec.DeviceID); k >= 0 {
		b.left = slices.Delete(b.left, k, k+1)
	}
	return true
}

// share gives to the claims that are open what the pod says, in its order, to each as many as it asks for now.
func (b *belief) share(asked []*devices.Request) {
	for _, k := range b.open {
		if k >= len(asked) {
			return // nobody knows what they are for
		}
		g := &b.claims[k]
		count := asked[k].Count() - len(g.IDs)
		if count <= 0 || count > len(b.left) {
			continue
		}
		own := b.left[:count:count]
		of := b.devices.resourceOf(b.node, own, asked[k].Resource())
		if len(g.IDs) > 0 && of != g.Resource {
			of = ""
		}
		g.Resource, g.IDs, b.left = of, append(g.IDs, own...), b.left[count:]
	}
}

// maxByCount bounds what is read of one resource that a pod asks for by count.
const maxByCount = 1024

// byCount returns how many devices a pod can have by count, beyond those of its claims.
func (b *belief) byCount(table *resources.Table, request *resources.Request) int {
	more := 0
	for _, a := range request.Amounts {
		if a.Column > resources.Pods && devices.Named(string(table.Name(a.Column))) {
			more += int(min(a.Value, maxByCount))
		}
	}
	for _, g := range b.claims {
		more -= len(g.IDs)
	}
	return max(0, more)
}

// areAsked reports whether the devices that a pod says it has are of the resources that its claims ask for now.
func (v *inventory) areAsked(node string, said *ledger.DeviceRequest) bool {
	ids := strings.Split(said.Given, ",")
	for _, r := range said.Requests {
		own := ids[:min(r.Count(), len(ids))]
		if v.resourceOf(node, own, r.Resource()) != r.Resource() {
			return false
		}
		ids = ids[len(own):]
	}
	return true
}

// resourceOf returns the resource that devices of a node belong to, by their IDs. Where the node has no such devices it
// returns the expected one. Devices of several resources may have the same ID: where the IDs fit several resources it
// returns "".
func (v *inventory) resourceOf(node string, ids []string, expected string) string {
	n, found := v.byNode[node], ""
	if n == nil {
		return expected
	}
	for name := range n.names {
		switch d := v.byName[name]; {
		case !slices.Contains(ids, d.Spec.DeviceID) || d.Spec.ResourceName == found:
		case found != "":
			return ""
		default:
			found = d.Spec.ResourceName
		}
	}
	return cmp.Or(found, expected)
}

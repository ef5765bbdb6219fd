package deviceclaims

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// podOf is the pod that a claim's status names, which is empty where there is none.
func podOf(obj *v1alpha1.ExtendedResourceClaim) types.UID {
	if obj.Status.PodRef == nil || len(obj.Status.ExtendedResources) == 0 {
		return ""
	}
	return obj.Status.PodRef.UID
}

// move keeps byPod in step with a claim whose status changes. s.mu is held.
func (s *claimSet) move(key types.NamespacedName, from, to types.UID) {
	if from == to {
		return
	}
	if s.byPod[from] = slices.DeleteFunc(s.byPod[from], func(k types.NamespacedName) bool { return k == key }); len(s.byPod[from]) == 0 {
		delete(s.byPod, from)
	}
	if to != "" {
		s.byPod[to] = append(s.byPod[to], key)
	}
}

// recorded returns the claims whose status, which servers write, says that a pod has their devices, by name, with the
// names of the devices.
func (s *claimSet) recorded(pod *cluster.Pod) map[string][]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names map[string][]string
	for _, key := range s.byPod[pod.Ref.UID] {
		if key.Namespace != pod.Ref.Namespace {
			continue
		}
		if names == nil {
			names = map[string][]string{}
		}
		names[key.Name] = s.byKey[key].obj.Status.ExtendedResources
	}
	return names
}

// believed returns what a bound pod says of its devices, unless the claims say otherwise. Many may edit a pod's
// annotations, and a server that was not there has not seen what they were; few may write the status of a claim.
func (c *Controller) believed(pod *cluster.Pod) *cluster.DeviceAnnotations {
	recorded := c.claims.recorded(pod)
	if pod.Ref.UID == "" || len(recorded) == 0 {
		return pod.Devices
	}
	claims, asked := slices.Sorted(maps.Keys(recorded)), ""
	if pod.Devices != nil && slices.Equal(slices.Sorted(slices.Values(pod.Devices.Claims)), claims) {
		claims, asked = pod.Devices.Claims, pod.Devices.Asked // in the pod's order
	}
	marks := asAsked(pod.Ref, asked, claims)
	ids := map[string]string{} // by the names of the objects
	node, _, _ := c.Ledger.Node(pod.Node)
	for _, d := range node.Devices {
		ids[d.Name] = d.ID
	}
	var given []string
	for _, claim := range claims {
		for _, device := range recorded[claim] {
			id, ok := ids[device]
			if !ok {
				return pod.Devices // the claim has lost a device: nobody else knows which
			}
			given = append(given, id)
		}
	}
	marks.Given = strings.Join(append(given, byCount(c.Ledger.Table(), pod, claims, recorded, given)...), ",")
	return marks
}

// maxByCount bounds what is read of one resource that a pod asks for by count.
const maxByCount = 1024

// byCount returns the devices that a pod says it has beyond those of its claims, as far as it asks for more by count.
func byCount(
	table *resources.Table, pod *cluster.Pod, claims []string, recorded map[string][]string, claimed []string,
) []string {
	if pod.Devices == nil || !slices.Equal(claims, pod.Devices.Claims) {
		return nil
	}
	more := -len(claimed)
	for _, a := range pod.Request.Amounts {
		if a.Column > resources.Pods && devices.Named(string(table.Name(a.Column))) {
			more += int(min(a.Value, maxByCount))
		}
	}
	counts := make([]int, len(claims))
	for k, claim := range claims {
		counts[k] = len(recorded[claim])
	}
	said := strings.Split(pod.Devices.GivenIDs(counts), ",")
	if more <= 0 || len(said) <= len(claimed) || len(said) > len(claimed)+more || !slices.Equal(said[:len(claimed)], claimed) {
		return nil
	}
	return said[len(claimed):]
}

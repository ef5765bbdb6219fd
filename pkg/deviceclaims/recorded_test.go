package deviceclaims

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A server that starts does not believe annotations that somebody edited while none was there: the pod's devices are
// given to nobody else.
func TestAnnotationsEditedWhileNoServerWasThere(t *testing.T) {
	for name, edited := range map[string]struct{ claims, given string }{
		"nothing":            {"one", "GPU-a"},
		"another device":     {"one", "GPU-b"},
		"no device":          {"one", ""},
		"another claim":      {"two", "GPU-a"},
		"nothing left":       {"", ""},
		"a claim too many":   {"one,two", "GPU-a,GPU-b"},
		"no list of claims":  {"one,,two", "GPU-a"},
		"no list of devices": {"one", ",GPU-b"},

		"nothing, by container":         {"main=one;log=one", "main=GPU-a;log=GPU-a"},
		"another device of a container": {"main=one", "main=GPU-b"},
		"another container":             {"log=one", "main=GPU-a"},
		"a container without claims":    {"main=one;log=", "main=GPU-a;log=GPU-b"},
		"a container too many":          {"main=one;log=two", "main=GPU-a;log=GPU-b"},
		"containers of another claim":   {"main=two", "main=GPU-a"},
		"devices of no container":       {"main=one", ";=GPU-b;GPU-b"},
	} {
		t.Run(name, func(t *testing.T) {
			held := claimFor(t, "one", "{}")
			held.Status = v1alpha1.ExtendedResourceClaimStatus{
				Phase: v1alpha1.ExtendedResourceClaimBound, NodeName: "n1", ExtendedResources: []string{"a"},
				PodRef: &v1alpha1.PodReference{Name: "p", UID: "uid-p"},
			}
			w, podsKnown := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), held,
				claimFor(t, "two", "{}"), claimFor(t, "three", "{}"))
			w.observe(w.pod("p", edited.claims, "n1", edited.given))
			podsKnown()
			assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "one", "", ""), "n1"))
			assert.Equal(t, "GPU-b", w.bind("q", "two", "n1"))
			assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("r", "three", "", ""), "n1"))
			assert.Equal(t, []string{"a"}, w.awaitClaim("one", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
		})
	}
}

// A server that starts reads what its predecessor told the containers of a pod, also where that wrote no status.
func TestDevicesOfContainersAfterAStart(t *testing.T) {
	const asked, given = "main=one,two;log=two", "main=GPU-a,GPU-b,GPU-c;log=GPU-b,GPU-c"
	for name, started := range map[string]struct{ claims, given string }{
		"as it was written":                {asked, given},
		"the claims as a list":             {"one,two", given},
		"the devices as a list":            {asked, "GPU-a,GPU-b,GPU-c"},
		"nobody knows what is for whom":    {asked, "main=GPU-a,GPU-b;log=GPU-b,GPU-c"},
		"the claims of another pod's text": {"main=two,;", given},
	} {
		t.Run(name, func(t *testing.T) {
			w, podsKnown := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), device("c", "n1", "K80"), device("d", "n1", "K80"),
				claimFor(t, "one", "{}"), claimFor(t, "two", "count: 2"), claimFor(t, "next", "{}"))
			w.observe(w.pod("p", started.claims, "n1", started.given))
			podsKnown()
			assert.Equal(t, "GPU-d", w.bind("q", "next", "n1"), "the others are taken")
			if started.claims == asked || started.claims == "one,two" {
				assert.Equal(t, []string{"a"}, w.awaitClaim("one", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
				assert.Equal(t, []string{"b", "c"}, w.awaitClaim("two", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
			}
		})
	}
}

// What no claim says of a pod is what the pod says.
func TestAnnotationsOfWhatNoClaimNames(t *testing.T) {
	held := claimFor(t, "one", "{}")
	held.Status = v1alpha1.ExtendedResourceClaimStatus{
		ExtendedResources: []string{"gone"}, PodRef: &v1alpha1.PodReference{Name: "p", UID: "uid-p"},
	}
	w, _ := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), held, claimFor(t, "two", "{}"))
	require.Equal(t, "GPU-b", w.controller.Devices(w.pod("p", "one", "n1", "GPU-b")).Given, "its device has no object")
	require.Equal(t, "GPU-a", w.controller.Devices(w.pod("other", "one", "n1", "GPU-a")).Given, "another pod's")
	assert.Nil(t, w.controller.Devices(w.pod("third", "", "n1", "")))
}

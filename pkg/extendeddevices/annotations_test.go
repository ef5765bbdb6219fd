package extendeddevices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What somebody edits of a bound pod's annotations is put back, in the form it was bound with, and the device is given
// to nobody else meanwhile.
func TestAnnotationsArePutBack(t *testing.T) {
	type said struct{ claims, given string }
	const asked, given = "main=one,two;log=two", "main=GPU-a,GPU-b;log=GPU-b"
	for form, tt := range map[string]struct {
		bound  said
		b      v1alpha1.ExtendedResourcePhase // of the other device
		edited map[string]said
		right  string // the claims, written in another way
	}{
		"list": {
			bound: said{"one", "GPU-a"}, b: v1alpha1.ExtendedResourceAvailable, right: " one ",
			edited: map[string]said{
				"another device":     {"one", "GPU-b"},
				"no device":          {"one", ""},
				"another claim":      {"two", "GPU-a"},
				"no claims":          {"", "GPU-a"},
				"nothing left":       {"", ""},
				"a claim too many":   {"one,two", "GPU-a"},
				"no list of claims":  {"one,,two", "GPU-a"},
				"no list of devices": {"one", ",GPU-a"},
			},
		},
		"containers": {
			bound: said{asked, given}, b: v1alpha1.ExtendedResourceBound, right: " main = one,two; log=two",
			edited: map[string]said{
				"devices of another container": {asked, "main=GPU-a;log=GPU-b"},
				"claims of another container":  {"main=one;log=two", given},
				"another container":            {"main=one,two;init=two", given},
				"lists":                        {"one,two", "GPU-a,GPU-b"},
				"no devices":                   {asked, ""},
				"a mistake":                    {"main=one,two;log=", given},
				"nothing left":                 {"", ""},
			},
		},
	} {
		t.Run(form, func(t *testing.T) {
			w := newWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), claimFor(t, "one", "{}"),
				claimFor(t, "two", "{}"))
			require.Equal(t, tt.bound.given, w.bind("p", tt.bound.claims, "n1"))
			for name, edited := range tt.edited {
				pod := w.pod("p", edited.claims, "n1", edited.given)
				w.observe(pod)
				w.controller.AnnotationsChanged(pod)
				assert.Equal(t, map[string]string{
					v1alpha1.ExtendedResourceClaimsAnnotation: tt.bound.claims, v1alpha1.ExtendedResourcesAnnotation: tt.bound.given,
				}, <-w.annotated, name)
				w.awaitEvent(reasonRestored)
				w.awaitDevice("b", tt.b)
				assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "one", "", ""), "n1"), name)
			}
			right := w.pod("p", tt.right, "n1", tt.bound.given)
			w.observe(right)
			w.controller.AnnotationsChanged(right)
			if form == "list" {
				assert.Equal(t, "GPU-b", w.bind("q", "two", "n1"))
			}
			assert.Equal(t, []string{"b"}, w.awaitClaim("two", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
			assert.Empty(t, w.annotated, "a pod that says what is so is left alone")
		})
	}
}

// A pod that asks by count has devices that no claim names: what it says of them is put back, too.
func TestAnnotationsOfCountsArePutBack(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), claimFor(t, "one", "{}"),
		claimFor(t, "two", "{}"))
	byCount := func(claims, given string) *cluster.Pod {
		pod := w.pod("p", claims, "n1", given)
		pod.Request = pod.Request.AtLeast(w.ledger.Table(), gpu, 1)
		return pod
	}
	w.observe(byCount("", "GPU-a"))
	assert.Nil(t, w.awaitDevice("a", v1alpha1.ExtendedResourceBound).ClaimRef, "no claim has it")
	for _, edited := range []*cluster.Pod{byCount("", ""), byCount("", "GPU-b"), byCount("one", "GPU-a")} {
		w.observe(edited)
		w.controller.AnnotationsChanged(edited)
		assert.Equal(t, map[string]string{
			v1alpha1.ExtendedResourceClaimsAnnotation: "", v1alpha1.ExtendedResourcesAnnotation: "GPU-a",
		}, <-w.annotated)
	}
	assert.Equal(t, "GPU-b", w.bind("q", "two", "n1"))
	assert.Nil(t, w.controller.Devices(w.pod("r", "", "", "GPU-a")), "a copy of another pod asks for nothing by that")
}

// Nobody knows what to write to a pod that was bound without devices, or that is not bound.
func TestAnnotationsAreLeftAloneWhereUnknown(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), claimFor(t, "one", "{}"))
	bypassed := w.pod("bypassed", "one", "n1", "")
	w.observe(bypassed)
	w.controller.AnnotationsChanged(w.pod("bypassed", "", "n1", ""))
	orphan := w.pod("orphan", "gone", "n1", "GPU-a")
	w.observe(orphan)
	w.controller.AnnotationsChanged(w.pod("orphan", "gone", "n1", ""))
	w.controller.AnnotationsChanged(w.pod("unknown", "one", "n1", "GPU-a"))
	for _, name := range []string{"bypassed", "orphan", "unknown"} {
		require.NoError(t, w.controller.bringPod(t.Context(), w.pod(name, "one", "n1", "").Ref))
	}
	assert.Empty(t, w.annotated)
}

package deviceclaims

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// What somebody edits of a bound pod's annotations is put back, and the device is given to nobody else meanwhile.
func TestAnnotationsArePutBack(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), claimFor(t, "one", "{}"), claimFor(t, "two", "{}"))
	require.Equal(t, "GPU-a", w.bind("p", "one", "n1"))
	for name, edited := range map[string]struct{ claims, given string }{
		"another device":     {"one", "GPU-b"},
		"no device":          {"one", ""},
		"another claim":      {"two", "GPU-a"},
		"no claims":          {"", "GPU-a"},
		"nothing left":       {"", ""},
		"a claim too many":   {"one,two", "GPU-a"},
		"no list of claims":  {"one,,two", "GPU-a"},
		"no list of devices": {"one", ",GPU-a"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := w.pod("p", edited.claims, "n1", edited.given)
			w.observe(pod)
			w.controller.AnnotationsChanged(pod)
			assert.Equal(t, map[string]string{
				v1alpha1.ExtendedResourceClaimsAnnotation: "one", v1alpha1.ExtendedResourcesAnnotation: "GPU-a",
			}, <-w.annotated)
			w.awaitEvent(reasonRestored)
			assert.Equal(t, v1alpha1.ExtendedResourceAvailable, w.awaitDevice("b", v1alpha1.ExtendedResourceAvailable).Phase)
			assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "one", "", ""), "n1"))
		})
	}
	right := w.pod("p", " one ", "n1", "GPU-a")
	w.observe(right)
	w.controller.AnnotationsChanged(right)
	assert.Equal(t, "GPU-b", w.bind("q", "two", "n1"))
	w.awaitClaim("two", v1alpha1.ExtendedResourceClaimBound)
	assert.Empty(t, w.annotated, "a pod that says what is so is left alone")
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

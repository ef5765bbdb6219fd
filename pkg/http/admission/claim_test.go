package admission_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/http/admission"
)

// newClaimsWorld is a world whose cluster has DRA, with a pool of some devices, and some objects of it.
func newClaimsWorld(tb testing.TB, objects ...runtime.Object) *world {
	tb.Helper()
	pool := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
	pool.Spec.Driver, pool.Spec.Pool = "gpu.example.com", resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}
	for _, name := range []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-a", "gpu-b", "gpu-c"} {
		pool.Spec.Devices = append(pool.Spec.Devices, resourcev1.Device{Name: name})
	}
	claims := decidetest.NewClaims(tb, append(objects, pool)...)
	w := newWorld(tb)
	w.serve(func(o *decide.Options) { o.ResourceClaims = claims })
	return w
}

// newClaim is a claim with devices of the one pool.
func newClaim(name, version string, devices ...string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name,
		UID: types.UID("uid-" + name), ResourceVersion: version,
	}}
	for _, d := range devices {
		if claim.Status.Allocation == nil {
			claim.Status.Allocation = &resourcev1.AllocationResult{}
		}
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "gpu.example.com", Pool: "p", Device: d})
	}
	return claim
}

// claimReview is what the API server asks about a write.
func claimReview(t testing.TB, before, after *resourcev1.ResourceClaim,
	changes ...func(*admissionv1.AdmissionRequest),
) *admissionv1.AdmissionReview {
	t.Helper()
	old, err := json.Marshal(before)
	require.NoError(t, err)
	update := func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.Namespace, r.Resource.Group = admissionv1.Update, before.Namespace, "resource.k8s.io"
		r.OldObject.Raw = old
	}
	return review(t, before.Name, "resourceclaims", "status", after, append([]func(*admissionv1.AdmissionRequest){update},
		changes...)...)
}

// allocate asks about a write that gives a claim devices.
func (w *world) allocate(name string, devices []string,
	changes ...func(*admissionv1.AdmissionRequest),
) *admissionv1.AdmissionResponse {
	w.t.Helper()
	r := claimReview(w.t, newClaim(name, "5"), newClaim(name, "5", devices...), changes...)
	return w.askAt(admission.ResourceClaimsPath, r)
}

// Schedulers copy a refusal into the condition of the pod, which its author reads: claims of others are not named. Who
// a claim is, is said by the object as it is: the API server keeps that, whatever a write says.
func TestResourceClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := newClaim("secret", "5", "gpu-2")
		others.Namespace = "foreign"
		w := newClaimsWorld(t, newClaim("a", "5", "gpu-0"), others)
		refused := w.allocate("b", []string{"gpu-1", "gpu-0"})
		require.False(t, refused.Allowed)
		assert.EqualValues(t, http.StatusForbidden, refused.Result.Code, "kube-scheduler would repeat a conflict")
		assert.Equal(t, metav1.StatusReasonForbidden, refused.Result.Reason)
		assert.Equal(t,
			"ResourceClaim ns/b is not given its devices: device gpu.example.com/p/gpu-0 is allocated to ResourceClaim ns/a. "+
				"Its scheduler tries the pod again, and takes others as soon as it has seen that", refused.Result.Message)
		unnamed := w.allocate("b", []string{"gpu-2"})
		require.False(t, unnamed.Allowed)
		assert.Contains(t, unnamed.Result.Message, "gpu-2 is allocated to ResourceClaim (of another namespace). Its")
		forged := newClaim("b", "9", "gpu-0")
		forged.Name, forged.UID = "a", "uid-a"
		refused = w.askAt(admission.ResourceClaimsPath, claimReview(t, newClaim("b", "5"), forged))
		require.False(t, refused.Allowed)
		assert.Contains(t, refused.Result.Message, "ResourceClaim ns/b is not given its devices")

		require.True(t, w.allocate("b", []string{"gpu-1"}, dryRun).Allowed)
		require.False(t, w.allocate("b", []string{"gpu-0"}, dryRun).Allowed)
		for range 2 {
			require.True(t, w.allocate("c", []string{"gpu-1"}).Allowed, "a dry run has granted nothing")
		}
		require.False(t, w.allocate("b", []string{"gpu-1"}).Allowed)
		require.True(t, w.allocate("a", nil).Allowed, "devices are taken away")
	})
}

func TestBadResourceClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimsWorld(t)
		for name, change := range map[string]func(*admissionv1.AdmissionRequest){
			"no object":     func(r *admissionv1.AdmissionRequest) { r.Object.Raw = nil },
			"not an object": func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"status":{"allocation":[]}}`) },
			"no old object": func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{}`) },
			"no version":    func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{"metadata":{"name":"a","uid":"u"}}`) },
		} {
			assert.False(t, w.allocate("a", []string{"gpu-0"}, change).Allowed, name)
		}
		skipped := w.allocate("a", []string{"gpu-0"}, func(r *admissionv1.AdmissionRequest) { r.SubResource = "" })
		assert.True(t, skipped.Allowed)
		assert.Contains(t, skipped.Warnings[0], "correct the rules")
		require.True(t, w.allocate("b", []string{"gpu-0"}).Allowed, "none of them has anything")
	})
}

// A server that does not decide grants nothing, and says so by an HTTP error, whose meaning the failurePolicy decides.
// That holds also where it is found out only after the decision.
func TestResourceClaimsWhileNobodyDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimsWorld(t)
		ask := func(name string) int {
			asked := claimReview(t, newClaim(name, "5"), newClaim(name, "5", "gpu-"+name))
			code, _ := w.postTo(admission.ResourceClaimsPath, encode(t, asked))
			return code
		}
		require.Equal(t, http.StatusOK, ask("a"))
		decides := 0 // so many times more
		w.Undecided = func() string {
			if decides--; decides < 0 {
				return "another server decides"
			}
			return ""
		}
		require.Equal(t, http.StatusServiceUnavailable, ask("b"))
		decides = 1
		require.Equal(t, http.StatusServiceUnavailable, ask("c"), "it has lost the Lease since it was asked")
	})
}

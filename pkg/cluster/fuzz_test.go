package cluster

import (
	"flag"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// allocated is how many bytes do allocates, and what the runtime does meanwhile.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever the author of a pod writes into its annotations, the pod is read, or refused, without more memory than
// belongs to the length of the texts.
func FuzzPodAnnotations(f *testing.F) {
	f.Add("true", "web", "90s", "ns/name/slot", "claim-1,claim-2", "gpu-0,gpu-1")
	f.Add("TRUE", "", "1h30m", "ns/name", ",,,", ",")
	f.Add("false", "a b", "-1", "////", "a,a,a", "\x00")
	f.Add("yes", "ä", "99999999999999999999h", "n/\xff/", "claim", "\xff,")
	f.Add("true", "i", "1e9", "a/b/c/d", " , ", "node/gpu")
	f.Add("", "", "", "", "c=a,b;c=a", "c=gpu-0,gpu-1;d")
	f.Add("", "", "", "", "c=template:a,b;d=;", "=;=,")
	f.Fuzz(func(t *testing.T, keep, index, ttl, matched, claims, devices string) {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{
				v1alpha1.ReservationAnnotation: keep, v1alpha1.ReservationIndexAnnotation: index,
				v1alpha1.ReservationTTLAnnotation:      ttl,
				v1alpha1.GodelReservationTTLAnnotation: ttl, v1alpha1.MatchedReservationAnnotation: matched,
				v1alpha1.ExtendedResourceClaimsAnnotation: claims, v1alpha1.ExtendedResourcesAnnotation: devices,
			}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		}
		length := len(keep) + len(index) + 2*len(ttl) + len(matched) + len(claims) + len(devices)
		used := allocated(func() {
			if got, err := (Reader{Table: resources.NewTable()}).NewPod(pod); err == nil {
				assert.Equal(t, "p", got.Ref.Name)
			}
			if ref, ok := parseMatched(matched); ok {
				require.NotEmpty(t, ref.Name)
			}
		})
		if flag.Lookup("test.fuzz").Value.String() != "" { // else others allocate as well
			assert.Less(t, used, uint64(1<<20+200*length))
		}
	})
}

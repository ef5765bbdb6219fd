package crd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// etcdLimit is the most bytes of one request to etcd, by its default --max-request-bytes.
const etcdLimit = 1536 * 1024

func (s *suite) testDefinitions(t *testing.T) {
	resources, err := s.Objects.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	require.NoError(t, err)
	got := map[string]string{}
	for _, r := range resources.APIResources {
		got[r.Name] = fmt.Sprintf("%s %v %t", r.Kind, r.ShortNames, r.Namespaced)
	}
	assert.Equal(t, map[string]string{
		"reservations": "Reservation [rsv] true", "reservations/status": "Reservation [] true",
		"extendedresources": "ExtendedResource [er] false", "extendedresources/status": "ExtendedResource [] false",
		"extendedresourceclaims":         "ExtendedResourceClaim [erc] true",
		"extendedresourceclaims/status":  "ExtendedResourceClaim [] true",
		"extendedresourceclaimtemplates": "ExtendedResourceClaimTemplate [erct] true",
		"ledgerterms":                    "LedgerTerm [] false", "ledgerterms/status": "LedgerTerm [] false",
	}, got)
}

// A group of MaxSlots, every name as long as a label may be, every slot consumed, is one object that
// etcd takes. The size is that of the server's JSON, which is what it stores.
func (s *suite) testLargest(t *testing.T) {
	const name = "largest"
	long := func(kind string, i int) string {
		return fmt.Sprintf("%s-%0*d", kind, 63-len(kind)-1, i)
	}
	uid := func(i int) types.UID { return types.UID(fmt.Sprintf("4b1e7b0e-6c1f-4b57-9a39-%012d", i)) }
	reservation := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range v1alpha1.MaxSlots {
		reservation.Spec.Slots = append(reservation.Spec.Slots, v1alpha1.Slot{
			Name: long("worker", i), NodeName: long("node", i),
			Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			},
			Pod: &v1alpha1.PodReference{Name: long("worker", i), UID: uid(i)},
		})
		reservation.Status.Slots = append(reservation.Status.Slots, v1alpha1.SlotStatus{
			Name: long("worker", i), NodeName: long("node", i), NodeUID: uid(i), State: v1alpha1.SlotConsumed,
			Pods: []v1alpha1.PodReference{{Name: long("worker", i), UID: uid(i)}},
		})
	}
	_, err := s.Reservations().Create(t.Context(), reservation, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.setStatus(t, name, reservation.Status))
	require.NoError(t, s.patch(t, name, `{"spec": {"ttl": "1h"}}`), "rules are affordable at this size")

	content, err := s.Objects.GlobalreserveV1alpha1().RESTClient().Get().
		Namespace(s.Namespace).Resource("reservations").Name(name).DoRaw(t.Context())
	require.NoError(t, err)
	t.Logf("%d slots take %d of %d bytes", v1alpha1.MaxSlots, len(content), etcdLimit)
	assert.Less(t, len(content), etcdLimit)
}

// What kubectl prints is the table the server makes, with the names in capitals.
func (s *suite) testColumns(t *testing.T) {
	require.NoError(t, s.reserve(t, "columns", one(`schedulerName: batch`)))
	require.NoError(t, s.setStatus(t, "columns", availableStatus()))
	columns, cells := table(t, s.Objects.GlobalreserveV1alpha1().RESTClient().Get().Namespace(s.Namespace).
		Resource("reservations").Name("columns"))
	assert.Equal(t, []string{"NAME", "NODENAME", "STATUS", "CONSUMED", "EXPIRES", "AGE", "[REASON]", "[SCHEDULER]"},
		columns)
	assert.Equal(t, []any{"columns", "node-7 +2", "Available", "2/3", "2030-01-02T03:04:05Z"}, cells[:5])
	assert.Regexp(t, `^\d+s$`, cells[5])
	assert.Equal(t, []any{"Reserved", "batch"}, cells[6:])
}
